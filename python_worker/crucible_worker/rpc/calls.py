"""Methods and their handlers, and the calls that are open: counted, bounded by admission, ended by a drain."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message

from crucible_bridge.idempotency import without_side_effects
from crucible_bridge.reasons import Reason
from crucible_worker.engine.admission import draining_error
from crucible_worker.rpc.byte_budget import Arrivals, ByteBudget, WorkBound, exhausted
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import Timeout, TimeoutQueue

__all__ = [
    "HEALTH",
    "REFLECTION",
    "WORKER",
    "Calls",
    "Context",
    "Encoded",
    "Handle",
    "Handlers",
    "Method",
    "Unparsed",
    "admitted",
]

# Handlers that services registered with a server, for other endpoints as well.


class _Details(NamedTuple):
    """The fields of grpc.HandlerCallDetails that a generic handler reads."""

    method: str


class Handlers:
    """Acts as the server for service registration: passes handlers on, and finds the handler of a method."""

    def __init__(self, server: grpc.aio.Server) -> None:
        """Register with this server."""
        self._server: Any = server
        self._generic: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Pass handlers on to the server."""
        handlers = tuple(handlers)
        self._generic += handlers
        self._server.add_generic_rpc_handlers(handlers)

    def find(self, path: str) -> Any:
        """The handler of a method, by its path.

        Raises:
            LookupError: no service has it.
        """
        for handler in self._generic:
            if (found := handler.service(_Details(path))) is not None:
                return found
        raise LookupError(f"no service has {path}")


# What the layers know about a method before its first call.

HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection."
"""Prefix of the names of its services."""
WORKER = "crucible_bridge.v1.WorkerService"

Context = grpc.aio.ServicerContext
Handle = Callable[[Any, Any], Awaitable[Any]]
"""A layer's shape: (raw request or request stream, context) -> response; streams write to the context, return None."""

Encoded = Any
"""A response that a thread has serialized: bytes, sent as they are. Any, as generated servicers declare messages."""

_OF_THE_PLATFORM = ("grpc.health.", REFLECTION)


@dataclasses.dataclass(frozen=True, slots=True)
class Unparsed:
    """The deserializer of a method that parses its requests by itself."""

    message: type[Message]
    """What they are; their elements are counted first."""
    work: WorkBound | None = None
    """Bounds the work in its calls; None if their number alone is bounded."""

    def __call__(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of one service."""

    path: str
    """"/crucible_bridge.v1.WorkerService/GetInfo"."""
    streams: bool
    """Whether it answers with a stream."""

    @property
    def service(self) -> str:
        """Full name of its service."""
        return self.path.rpartition("/")[0].removeprefix("/")

    @property
    def name(self) -> str:
        """Its name within the service."""
        return self.path.rpartition("/")[2]

    @property
    def quiet(self) -> bool:
        """Whether a successful call is logged only for debugging: reads, arithmetic, probes, reflection."""
        reads = not self.streams and self.path in without_side_effects()
        return reads or self.service.startswith(_OF_THE_PLATFORM)

    @property
    def essential(self) -> bool:
        """Whether it is answered even if the worker is busy or drains: probes, and WorkerService."""
        return self.service in (HEALTH, WORKER)


# The calls that are open.

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
