"""Models of the Hugging Face hub: found in the worker's cache of it, and fetched into it by a child process."""
