"""The backend of OpenAI-compatible servers: the configured servers, and models of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Self

from crucible_bridge import types
from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, ModelRef, OpenAIModel
from crucible_worker.backends.base import Backend
from crucible_worker.backends.endpoints import BackendSettings
from crucible_worker.backends.openai.connection import ServerConnection, missing
from crucible_worker.backends.openai.fleet import Fleet
from crucible_worker.backends.openai.model import RemoteModel
from crucible_worker.backends.openai.servers import OpenAIServer

__all__ = ["OpenAIBackend"]


class OpenAIBackend(Backend):
    """Models of the servers that a worker is configured with; it opens OpenAIModel refs.

    No server is queried, and nothing heavy imported, before a model is loaded.
    """

    opens = (OpenAIModel,)
    extras = (("openai", "query OpenAI-compatible servers"),)
    libraries = ("aiohttp",)

    def __init__(self, servers: Sequence[OpenAIServer] = (), environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._servers = {server.name: server for server in servers}
        self._connections: dict[str, ServerConnection | Fleet] = {}

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it with the servers, and the variables that have their keys."""
        return cls(settings.endpoints_of(OpenAIServer), settings.environment)

    def info(self) -> BackendInfo:
        """Whether a server is configured. Imports nothing."""
        no_server = "" if self._servers else "no server; start the worker with --openai-server"
        return BackendInfo(name="openai", unavailable=missing() or no_server)

    def fleets(self) -> tuple[types.Fleet, ...]:
        """The replicas of each server that has several and has been used."""
        return tuple(
            types.Fleet(backend="openai", name=name, replicas=connection.states())
            for name, connection in self._connections.items()
            if isinstance(connection, Fleet)
        )

    async def open(self, model: ModelRef) -> RemoteModel:
        """Find a server by its name; only a request shows whether it has the model.

        Raises:
            NotFound: there is no server of that name (UNKNOWN_SERVER).
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED).
        """
        if not isinstance(model, OpenAIModel):
            raise InvalidField("model", f"is a {type(model).__name__}, not one of an OpenAI-compatible server")
        server = self._servers.get(model.server)
        if server is None:
            known = f"; there are {', '.join(sorted(self._servers))}" if self._servers else "; there is none"
            raise NotFound(
                f"names the server {model.server!r}, which is not known here{known}: "
                f"add --openai-server {model.server}=URL",
                reason=Reason.UNKNOWN_SERVER,
                field="model",
            )
        if absent := missing():
            raise FailedPrecondition(absent, reason=Reason.EXTRA_NOT_INSTALLED)
        connection = self._connections.get(server.name)
        if connection is None:
            make = Fleet if server.is_fleet else ServerConnection
            connection = self._connections[server.name] = make(server, self._environment)
        return RemoteModel(connection, model.model)

    async def aclose(self) -> None:
        """Close every connection, within a second. Idempotent."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))
