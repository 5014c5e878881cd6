"""Handlers that services registered with a server, for other endpoints as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
import grpc.aio

__all__ = ["Handlers"]


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
