"""A long request, sent in parts: the library alone would wait for ever for a server that stops reading."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp.abc import AbstractStreamWriter

__all__ = ["PART_BYTES", "LongBody"]

PART_BYTES = 64 * 1024
"""Bytes of a part, which a socket accepts at once; the server has its stall time to read each part."""


class LongBody(aiohttp.Payload):
    """A JSON body that is sent in parts.

    Args:
        content: the body.
        stall_seconds: how long a server may take to read a part.
    """

    _value: bytes

    def __init__(self, content: bytes, stall_seconds: float) -> None:
        super().__init__(content, content_type="application/json")
        self._stall_seconds = stall_seconds

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self._value)

    @property
    def autoclose(self) -> bool:
        """True: there is nothing to close."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body.

        Raises:
            TimeoutError: the server did not read a part in time.
        """
        whole = memoryview(self._value)
        for start in range(0, len(whole), PART_BYTES):
            async with asyncio.timeout(self._stall_seconds):
                await writer.write(whole[start : start + PART_BYTES])
