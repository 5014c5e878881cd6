"""A further endpoint of a worker, next to its own services: a service of another protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from crucible_worker.config import Settings
from crucible_worker.rpc import Calls
from crucible_worker.server.parts import Parts

if TYPE_CHECKING:
    from crucible_worker.snakepit.tools import Tools

__all__ = ["Endpoint", "snakepit_endpoint"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A further service, on the same port."""

    service: str
    """Its full name. Its methods pass no interceptor: it does its own authentication and error mapping."""
    handler: Callable[[Parts, Tools, Calls], grpc.GenericRpcHandler]
    """Makes its handler, once the worker is built."""


def snakepit_endpoint(settings: Settings) -> Endpoint:
    """The endpoint for a pool of Snakepit; its modules are imported only if it is used."""
    from crucible_worker.snakepit.service import SERVICE, BridgeService

    def handler(parts: Parts, tools: Tools, calls: Calls) -> grpc.GenericRpcHandler:
        limit = settings.limits.max_message_bytes
        return BridgeService(tools, parts.evaluations.written(), calls, max_message_bytes=limit).handler()

    return Endpoint(service=SERVICE, handler=handler)
