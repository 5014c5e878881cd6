"""Data sets of the Hugging Face hub, read by a child process: only it imports the library."""
