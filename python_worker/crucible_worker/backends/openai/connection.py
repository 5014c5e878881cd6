"""The connection to one server that its models share: reached once, with the concurrency of its settings."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.backends.openai.dialects import Dialects
from crucible_worker.backends.openai.documents import apart, max_bytes, read_document, takes_long
from crucible_worker.backends.openai.failures import FailedRequest, of_error_document
from crucible_worker.backends.openai.reading import read_apart
from crucible_worker.backends.openai.served import listed_of
from crucible_worker.backends.openai.servers import OpenAIServer

if TYPE_CHECKING:
    from crucible_worker.backends.openai.client import Client

__all__ = ["CLOSE_SECONDS", "DECISIVE", "ServerConnection", "closed", "missing"]

CLOSE_SECONDS = 0.5
"""Seconds to close connections; those still open then stay until the process ends."""

T = TypeVar("T")

_READERS = 2
"""Long answers of one server that are parsed at once: each may take a processor and a few GB."""

DECISIVE = frozenset(
    {
        Reason.BACKEND_UNAUTHENTICATED,
        Reason.BACKEND_FORBIDDEN,
        Reason.BACKEND_UNREACHABLE,
        Reason.BACKEND_CONNECTION_LOST,
        Reason.BACKEND_TIMEOUT,
    }
)
"""Errors of the request for the server's models that hold for every other request, too."""


def missing() -> str:
    """Empty, or what must be installed; imports nothing."""
    absent = importlib.util.find_spec("aiohttp") is None
    return "aiohttp not installed: install crucible-bridge[openai]" if absent else ""


class ServerConnection:
    """A server and the connections to it; making one sends nothing.

    Args:
        server: with one base URL.
        environment: that its key is read from.
        address: of the server, in place of those of its name.
    """

    def __init__(self, server: OpenAIServer, environment: Mapping[str, str], address: str | None = None) -> None:
        self.server = server
        self.dialects = Dialects()
        """What it refuses, by model."""
        self.owner = ""
        """The owner that its list of models last named: it tells which program it is. Empty if that is not known."""
        self._address = address
        self._environment = environment
        self._client: Client | None = None
        self._making = asyncio.Lock()
        self._readers = asyncio.Semaphore(_READERS)
        self._turns = asyncio.Semaphore(server.max_connections)
        self._reached = False
        self._closed = False

    async def reach(self, model: str) -> None:
        """Check that the server is reachable and accepts the key; repeated until it succeeds once.

        Args:
            model: that is wanted; a single server is not compared with others.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read.
            BackendError: the server cannot be reached, or refuses the key.
        """
        await self._ready()
        if self._reached:
            return
        try:
            content = await self.models()
            self.owner = (await apart(len(content), listed_of, content, model)).owner
        except BridgeError as error:
            # A server without a list of models, or one that cannot return it now, may answer other requests.
            if error.reason in DECISIVE:
                raise
        self._reached = True

    async def models(self) -> bytes:
        """The server's list of its models, as it sends it.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read.
            BackendError: there is no such answer; see `failures`.
        """
        return await (await self._ready()).send("/models", None, "", max_bytes(0))

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """Itself, by its base URL: as of several replicas."""
        return {self.server.base_url: self}

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for this connection: as of several replicas."""
        return (await call(self),)

    async def look(self, path: str) -> tuple[bytes, str]:
        """What the server returns at a path, and the name of its program; see `Client.look`.

        Raises:
            BridgeError: there is no answer, or the server was not reached.
        """
        return await (await self._ready()).look(path)

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request and read its answer, a JSON object.

        Args:
            path: below the base URL: "/completions".
            body: of the request.
            model: its name, for errors.
            tokens: most tokens that the answer may list.

        Raises:
            BridgeError: there is no answer; see `failures`.
        """
        client = await self._ready()
        async with self._turns:
            if self._closed:  # while this one waited for its turn
                raise closed()
            content = await client.send(path, body, model, max_bytes(tokens))
        if not takes_long(content):
            document = await apart(len(content), read_document, content, tokens, self.server.name)
        else:
            async with self._readers:
                document = await read_apart(content, tokens, self.server.name)
        error = of_error_document(FailedRequest(server=self.server.name, model=model, path=path), document)
        if error is not None:
            raise error
        return document

    async def finish(self) -> None:
        """Close the connections when the requests under way have ended; no other may be sent after this call."""
        try:
            for _ in range(self.server.max_connections):
                await self._turns.acquire()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; requests under way fail. Idempotent."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.aclose()

    async def _ready(self) -> Client:
        if self._client is not None and not self._closed:
            return self._client
        async with self._making:
            if self._client is None and not self._closed:
                if absent := missing():
                    raise FailedPrecondition(absent, reason=Reason.EXTRA_NOT_INSTALLED)
                self._client = await asyncio.to_thread(self._make)
            # Checked again: the worker may have ended while the client was made.
            if self._client is None or self._closed:
                raise closed()
            return self._client

    def _make(self) -> Client:
        try:
            key = self.server.key(self._environment)
        except ValueError as error:
            raise FailedPrecondition(str(error), reason=Reason.BACKEND_KEY) from None
        module = importlib.import_module("crucible_worker.backends.openai.client")
        return module.Client(self.server, key, self._address)


def closed() -> Unavailable:
    """The error of a request after the end of the backend."""
    return Unavailable("the openai backend is closed", reason=Reason.BACKEND_CLOSED, retryable=False)
