"""The process of one logger: it imports the tracker's library, and nothing else of it runs in the worker."""
