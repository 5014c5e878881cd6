"""What services registered with a server, to be called by other endpoints as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
import grpc.aio

__all__ = ["Handlers"]


class _Details(NamedTuple):
    """As much of grpc.HandlerCallDetails as a generic handler looks at."""

    method: str


class Handlers:
    """A server to those who register services with it: hands all on, and finds a method's handler again."""

    def __init__(self, server: grpc.aio.Server) -> None:
        """Register with this server."""
        self._server: Any = server
        self._generic: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Hand handlers on."""
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
