"""Bounds concurrent calls: per service, so that a flood of calls to one never blocks another, nor a health check.

gRPC's own `maximum_concurrent_rpcs` is server-wide and refuses probes too; then an orchestrator kills the worker.
"""

from __future__ import annotations

from typing import Any

from crucible_worker.rpc.calls import Calls
from crucible_worker.rpc.methods import Context, Handle, Method

__all__ = ["admitted"]


def admitted(inner: Handle, method: Method, calls: Calls) -> Handle:
    """Bound the open calls of a service, and refuse new ones during a drain; probes always pass."""
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
