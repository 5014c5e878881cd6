"""Models of the Hugging Face hub: found in the worker's cache, and fetched into it by a child process."""
