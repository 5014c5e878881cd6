"""The calls open in this worker: counted, bounded for each service by admission, and ended by a drain."""

from __future__ import annotations

import asyncio
import collections
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_worker.engine.admission import draining_error
from crucible_worker.rpc.byte_budget import Arrivals, ByteBudget, exhausted
from crucible_worker.rpc.methods import HEALTH, REFLECTION, Context, Handle, Method
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import Timeout, TimeoutQueue

__all__ = ["Calls", "admitted"]


Timer = asyncio.Timeout | Timeout
"""What bounds a call, or a part of it."""


class Calls:
    """Calls and streams open in this worker, by service; used in one event loop."""

    def __init__(self, limits: WorkerLimits) -> None:
        """Bound what is open at once: by service, by peer, and in bytes."""
        self._limits = limits
        self._open: collections.Counter[tuple[str, bool]] = collections.Counter()
        self._of_peers: collections.Counter[tuple[str, str]] = collections.Counter()
        self.room = ByteBudget(limits.max_request_bytes_in_flight)
        """Bounds the bytes of requests."""
        self.arrivals = Arrivals()
        """Bounds what callers without a token send."""
        self._timers: set[Timer] = set()
        self._cut_at: float | None = None
        self.timeouts = TimeoutQueue()
        """Timers of calls."""
        self.draining = False
        """Whether new calls are refused."""

    @property
    def open(self) -> int:
        """Number of open calls and streams, without those to health and WorkerService."""
        return self._open.total() - self._open[HEALTH, True]

    def enter(self, method: Method, peer: str) -> None:
        """Count a call that begins.

        Raises:
            Unavailable: the worker drains.
            ResourceExhausted: the service has no room for a further call, or none for this peer.
        """
        if self.draining and not method.essential:
            raise draining_error()
        slot, limit = (method.service, method.streams), self._room(method)
        if self._open[slot] >= limit:
            what, reason = ("streams", Reason.TOO_MANY_STREAMS) if method.streams else ("calls", Reason.TOO_MANY_CALLS)
            raise exhausted(f"{method.service} has {limit} {what} open already", reason)
        if method.streams and _is_one_connection(peer):
            of_peer, limit = (method.service, peer), self._limits.max_streams_per_peer
            if self._of_peers[of_peer] >= limit:
                message = f"{method.service} has {limit} streams of this connection open already"
                raise exhausted(message, Reason.TOO_MANY_STREAMS_OF_PEER)
            self._of_peers[of_peer] += 1
        self._open[slot] += 1

    def leave(self, method: Method, peer: str) -> None:
        """Count a call that ended."""
        self._open[method.service, method.streams] -= 1
        if method.streams and _is_one_connection(peer):
            self._of_peers[method.service, peer] -= 1
            if not self._of_peers[method.service, peer]:
                del self._of_peers[method.service, peer]

    def watch(self, timer: Timer) -> None:
        """Register a call's running timer, so that a drain can end the call."""
        self._timers.add(timer)
        if self._cut_at is not None:
            _shorten(timer, self._cut_at)

    def forget(self, timer: Timer) -> None:
        """Remove a timer."""
        self._timers.discard(timer)

    def cut(self, after: float) -> None:
        """End every call that still waits `after` seconds from now with the error of draining."""
        self._cut_at = asyncio.get_running_loop().time() + after
        for timer in self._timers:
            _shorten(timer, self._cut_at)

    def _room(self, method: Method) -> int:
        if not method.streams:
            return self._limits.max_calls_per_service
        if method.service == HEALTH:
            return self._limits.max_health_watches
        if method.service.startswith(REFLECTION):
            return self._limits.max_reflection_streams
        return self._limits.max_streams


def _is_one_connection(peer: str) -> bool:
    """Whether a peer's name identifies its connection: "ipv4:127.0.0.1:40312" does, "unix:" does not."""
    return peer.startswith(("ipv4:", "ipv6:"))


def _shorten(timer: Timer, when: float) -> None:
    due = timer.when()
    if not timer.expired() and (due is None or due > when):
        timer.reschedule(when)


# Bounds concurrent calls: per service, so that a flood of calls to one never blocks another, nor a health check.
#
# gRPC's own `maximum_concurrent_rpcs` is server-wide and refuses probes too; then an orchestrator kills the worker.


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
