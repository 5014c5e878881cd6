"""Requests to a server that are none for its models: whether it is healthy, which weights it has, that it load others.

The server listens on 127.0.0.1 and is the worker's own, so its answers are believed, within bounds.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal

import aiohttp

__all__ = ["ControlClient", "ControlReply", "NoReply"]

MAX_ANSWER_BYTES = 1 << 20
"""Most bytes of an answer that are read."""
QUICK_SECONDS = 10.0
"""How long a server may take for an answer that it has at hand."""


class NoReply(Exception):
    """Raised when there is no answer; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class ControlReply:
    """An answer."""

    status: int
    """Of HTTP."""
    text: str
    """The body."""

    @property
    def ok(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status == 200

    @property
    def document(self) -> dict[str, Any]:
        """The body as a JSON object; empty if it is none."""
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class ControlClient:
    """Requests to one server.

    Args:
        root: its address without a path: "http://127.0.0.1:8000".
        slow_seconds: how long it may take to load weights.
    """

    def __init__(self, root: str, slow_seconds: float) -> None:
        self._root = root
        self.slow_seconds = slow_seconds

    async def get(self, path: str) -> ControlReply:
        """What the server returns at a path.

        Raises:
            NoAnswer: nothing.
        """
        return await self._send("GET", path, None, QUICK_SECONDS)

    async def post(self, path: str, body: dict[str, Any], seconds: float = QUICK_SECONDS) -> ControlReply:
        """What the server returns to a JSON object.

        Raises:
            NoAnswer: nothing.
        """
        return await self._send("POST", path, body, seconds)

    async def _send(
        self, method: Literal["GET", "POST"], path: str, body: dict[str, Any] | None, seconds: float
    ) -> ControlReply:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            # A connection of its own: these requests are rare, and a server that dies leaves no connection behind.
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(method, f"{self._root}{path}", json=body, allow_redirects=False) as response,
            ):
                content = await response.content.read(MAX_ANSWER_BYTES)
                while len(content) < MAX_ANSWER_BYTES and (more := await response.content.read(MAX_ANSWER_BYTES)):
                    content += more
                return ControlReply(response.status, content[:MAX_ANSWER_BYTES].decode(errors="replace"))
        except TimeoutError:
            raise NoReply(f"{path} did not answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoReply(f"{path} cannot be reached: {type(error).__name__}") from None
