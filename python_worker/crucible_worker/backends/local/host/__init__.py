"""The child process that holds models: `python -m crucible_worker.backends.local.host`. Only it imports torch."""
