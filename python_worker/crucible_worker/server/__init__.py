"""The worker as a gRPC server: build -> warm -> serve -> drain.

A command that evaluates here imports `parts` alone: the server and its services are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import crucible_worker.telemetry  # noqa: F401 - before anything else imports structlog: see there

if TYPE_CHECKING:
    from crucible_worker.server.credentials import StartError
    from crucible_worker.server.parts import Parts
    from crucible_worker.server.process import serve
    from crucible_worker.server.worker import Worker

__all__ = ["Parts", "StartError", "Worker", "serve"]

_HOMES = {"Parts": "parts", "StartError": "credentials", "Worker": "worker", "serve": "process"}


# Hidden from type checkers: they would accept any name as part of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
