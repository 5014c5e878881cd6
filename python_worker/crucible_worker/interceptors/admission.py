"""How many calls at once: per service, so that a flood of one never starves another, nor a health check.

gRPC's own `maximum_concurrent_rpcs` is server-wide and refuses probes too, upon which an orchestrator kills the worker.
"""

from __future__ import annotations

from typing import Any

from crucible_worker.interceptors.calls import Calls
from crucible_worker.interceptors.methods import Context, Handle, Method

__all__ = ["admitted"]


def admitted(inner: Handle, method: Method, calls: Calls) -> Handle:
    """Bound the calls of a service that are open at once, and refuse new ones on drain; probes always pass."""
    if method.essential and not method.streams:
        return inner

    async def handle(request: Any, context: Context) -> Any:
        peer = context.peer()
        calls.enter(method, peer)
        try:
            return await inner(request, context)
        finally:
            calls.leave(method, peer)

    return handle
