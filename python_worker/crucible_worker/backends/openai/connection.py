"""One server as its models share it: reached once, asked by so many at once as its settings say."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_worker.backends.openai.failures import garbage
from crucible_worker.backends.openai.servers import OpenAIServer

if TYPE_CHECKING:
    from crucible_worker.backends.openai.client import Client

__all__ = ["CLOSE_SECONDS", "Connection", "missing"]

CLOSE_SECONDS = 0.5
"""Connections that do not let themselves be closed in this time are left to the end of the process."""

_DECISIVE = frozenset(
    {
        "BACKEND_UNAUTHENTICATED",
        "BACKEND_FORBIDDEN",
        "BACKEND_UNREACHABLE",
        "BACKEND_CONNECTION_LOST",
        "BACKEND_TIMEOUT",
    }
)
"""Of what a server says when it is asked for its models, that which holds for every other request, too."""


def missing() -> str:
    """Empty, or what must be installed; imports nothing."""
    absent = importlib.util.find_spec("openai") is None
    return "openai not installed: install crucible-bridge[openai]" if absent else ""


class Connection:
    """A server and the connections to it; made without a word to it."""

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server
        self._client: Client | None = None
        self._making = asyncio.Lock()
        # The library's pool would keep order as well, at a cost that grows with the square of those who wait.
        self._turns = asyncio.Semaphore(server.max_connections)
        self._reached = False
        self._closed = False

    async def reach(self) -> None:
        """Find out whether the server is there and takes the key; asked once, until it says yes.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read.
            BackendError: the server is not there, or refuses the key.
        """
        client = await self._ready()
        if self._reached:
            return
        try:
            await client.send("/models", None, "")
        except BridgeError as error:
            # A server that has no list of models, or cannot give it now, may answer all the same.
            if error.reason in _DECISIVE:
                raise
        self._reached = True

    async def ask(self, path: str, body: dict[str, object], model: str) -> dict[str, Any]:
        """Send a request and read its answer, a JSON object.

        Raises:
            BridgeError: there is none; see `failures`.
        """
        client = await self._ready()
        async with self._turns:
            content = await client.send(path, body, model)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise garbage(self.server.name, f"{len(content):,} bytes that are not JSON") from None
        if not isinstance(document, dict):
            raise garbage(self.server.name, f"JSON that is no object, but {type(document).__name__}")
        return document

    async def aclose(self) -> None:
        """Close the connections; requests under way fail. Idempotent."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.aclose()

    async def _ready(self) -> Client:
        async with self._making:
            if self._client is None and not self._closed:
                if absent := missing():
                    raise FailedPrecondition(absent, reason="EXTRA_NOT_INSTALLED")
                self._client = await asyncio.to_thread(self._make)
            # Asked last: the worker may have come to its end while the client was made.
            if self._client is None or self._closed:
                raise Unavailable("the openai backend is closed", reason="BACKEND_CLOSED", retryable=False)
            return self._client

    def _make(self) -> Client:
        try:
            key = self.server.key()
        except ValueError as error:
            raise FailedPrecondition(str(error), reason="BACKEND_KEY") from None
        module = importlib.import_module("crucible_worker.backends.openai.client")
        return module.Client(self.server, key)
