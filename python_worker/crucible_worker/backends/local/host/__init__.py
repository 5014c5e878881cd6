"""The child process that has the models: `python -m crucible_worker.backends.local.host`. Only it imports torch."""
