"""A further endpoint of a worker, next to its own services: a service of another protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from crucible_worker.config import Settings
from crucible_worker.interceptors import Calls
from crucible_worker.server.parts import Parts

if TYPE_CHECKING:
    from crucible_worker.snakepit.tools import Tools

__all__ = ["Endpoint", "snakepit_endpoint"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A further service, on the port of the others."""

    service: str
    """Its full name. Its methods pass no interceptor: what guards them, and how they tell errors, is their own."""
    handler: Callable[[Parts, Tools, Calls], grpc.GenericRpcHandler]
    """Makes it, once the worker is built."""


def snakepit_endpoint(settings: Settings) -> Endpoint:
    """The endpoint for a pool of Snakepit's; what it needs is imported for those who open it alone."""
    from crucible_worker.snakepit.service import SERVICE, BridgeService

    def handler(parts: Parts, tools: Tools, calls: Calls) -> grpc.GenericRpcHandler:
        limit = settings.limits.max_message_bytes
        return BridgeService(tools, parts.evaluations.written(), calls, max_message_bytes=limit).handler()

    return Endpoint(service=SERVICE, handler=handler)
