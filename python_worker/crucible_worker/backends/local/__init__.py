"""Models that torch runs on this machine, in a child process of the worker."""

from crucible_worker.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
