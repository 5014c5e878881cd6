"""JSON from a server, parsed without trust: the request bounds the cost of its answer.

Bytes and values are bounded before parsing. Both bounds grow with the tokens that an answer may list, up to 64 MiB:
250,000 tokens of a prompt fit. Parsing JSON holds the interpreter's lock from the first byte to the last, so another
process parses an answer that may take long, see `reading`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from crucible_worker.backends.openai.event_streams import InvalidStream, is_stream, joined
from crucible_worker.backends.openai.failures import garbage, repeated

__all__ = [
    "APART_BYTES",
    "MAX_ANSWER_BYTES",
    "InvalidAnswer",
    "apart",
    "max_bytes",
    "max_parts",
    "parse",
    "read_document",
    "takes_long",
]

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Most bytes of any answer."""

APART_BYTES = 256 * 1024
"""A thread parses longer answers."""

QUICK_BYTES = 2 * 1024 * 1024
QUICK_PARTS = 1 << 17
"""A separate process parses an answer that exceeds one of them; 131,072 new keys take about 0.04 s of CPU."""

_FREE_BYTES = 4 * 1024 * 1024
_BYTES_A_TOKEN = 512
_FREE_PARTS = 1 << 18
_PARTS_A_TOKEN = 24

_T = TypeVar("_T")


def max_bytes(tokens: int) -> int:
    """Most bytes of an answer that lists so many tokens."""
    return min(MAX_ANSWER_BYTES, _FREE_BYTES + tokens * _BYTES_A_TOKEN)


def max_parts(tokens: int) -> int:
    """Most brackets, braces and colons in an answer that lists so many tokens; those within texts count, too."""
    return _FREE_PARTS + min(tokens * _PARTS_A_TOKEN, MAX_ANSWER_BYTES)


def takes_long(content: bytes) -> bool:
    """Whether parsing an answer may hold the interpreter's lock for longer than other calls can wait."""
    return len(content) > QUICK_BYTES or _parts(content) > QUICK_PARTS


class InvalidAnswer(ValueError):
    """Raised for an invalid answer; the message says what was received."""


def parse(content: bytes, tokens: int) -> dict[str, Any]:
    """Parse an answer that may list so many tokens: a JSON object, or a stream of events with the pieces of one.

    Raises:
        InvalidAnswer: it is neither, or has more parts than such an answer can have.
    """
    if _parts(content) > max_parts(tokens):
        raise InvalidAnswer(f"more than {max_parts(tokens):,} lists, objects and keys")
    try:
        document = joined(content) if is_stream(content) else json.loads(content)
    except InvalidStream as error:
        raise InvalidAnswer(repeated(str(error).encode("utf-8", "replace"), None)) from None
    except (ValueError, RecursionError):
        said = f": {repeated(content, None)}" if content.strip() else ""
        raise InvalidAnswer(f"{len(content):,} bytes that are not JSON{said}") from None
    if not isinstance(document, dict):
        raise InvalidAnswer(f"JSON of type {type(document).__name__}, not an object: {repeated(content, None)}")
    return document


def read_document(content: bytes, tokens: int, server: str) -> dict[str, Any]:
    """As `parse`; errors name the server.

    Raises:
        BackendError: as `parse` (BACKEND_ANSWER).
    """
    try:
        return parse(content, tokens)
    except InvalidAnswer as error:
        raise garbage(server, str(error)) from None


def _parts(content: bytes) -> int:
    # These cost time and memory: a list takes thirty times the bytes of its text, a new key ten times.
    return sum(map(content.count, (b"[", b"{", b":")))


async def apart(size: int, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that parses `size` bytes: in a thread if they are many."""
    if size <= APART_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
