"""Models on this machine, in a child process of the worker.

Importing it imports nothing: the child processes are packages below it, and need little of what the worker needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_worker.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]


# Hidden from type checkers: they would accept any name as part of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "LocalBackend":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from crucible_worker.backends.local.backend import LocalBackend  # 0.2 s that no child process need spend

        return LocalBackend
