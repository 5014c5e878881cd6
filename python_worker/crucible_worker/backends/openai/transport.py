"""The last stop before the wire: what is sent is only what must be, and what is taken in is bounded.

The openai library adds headers from the environment (an organisation, a project, whatever OPENAI_CUSTOM_HEADERS says)
and a description of this machine. Only the headers below leave; the key is put on here and is known nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

__all__ = ["MAX_ANSWER_BYTES", "AnswerRefused", "GuardedTransport"]

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer, as it crosses the wire: log-probabilities of a prompt of 250,000 tokens fit."""

_SENT = ("Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Accept", "User-Agent")


class AnswerRefused(httpx2.TransportError):
    """The server's answer is longer than any that makes sense, or in an encoding that nobody asked for."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A transport that shows a key, and refuses answers that would fill the memory."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, key: str | None) -> None:
        self._inner = inner
        self._key = key

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            AnswerRefused: the answer is encoded, or longer than MAX_ANSWER_BYTES; the connection is closed.
        """
        sent = {name: request.headers[name] for name in _SENT if name in request.headers}
        # A few bytes that expand to gigabytes would pass any bound on what crosses the wire.
        sent["Accept-Encoding"] = "identity"
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        request.headers = httpx2.Headers(sent)
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.stream.aclose()
            raise AnswerRefused("is compressed, which was not asked for")
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise AnswerRefused(f"is longer than {MAX_ANSWER_BYTES:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
