"""What the layers know about a method before its first call, and the handlers that services registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message

from crucible_bridge.idempotency import without_side_effects
from crucible_worker.rpc.byte_budget import WorkBound

__all__ = ["HEALTH", "REFLECTION", "WORKER", "Context", "Encoded", "Handle", "Handlers", "Method", "Unparsed"]

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
