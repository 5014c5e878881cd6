"""JSON that a server sent, read without trust: what it may cost is bounded by what was asked.

Bytes and values are bounded before. Both bounds grow with the tokens that an answer may tell of, up to 64 MiB: 250,000
tokens of a prompt fit. Reading JSON holds the interpreter's lock from its first byte to its last, so an answer that may
take long is read by another program, `reading`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from crucible_worker.backends.openai.failures import garbage

__all__ = [
    "APART_BYTES",
    "MAX_ANSWER_BYTES",
    "Nonsense",
    "apart",
    "max_bytes",
    "max_parts",
    "parse",
    "read_document",
    "takes_long",
]

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer, whatever was asked."""

APART_BYTES = 256 * 1024
"""Longer answers are read by a thread."""

QUICK_BYTES = 2 * 1024 * 1024
QUICK_PARTS = 1 << 17
"""An answer that exceeds one of them is read by a process; 131,072 new keys take about 0.04 s of CPU."""

_FREE_BYTES = 4 * 1024 * 1024
_BYTES_A_TOKEN = 512
_FREE_PARTS = 1 << 18
_PARTS_A_TOKEN = 24

_T = TypeVar("_T")


def max_bytes(tokens: int) -> int:
    """The longest answer that can tell of so many tokens."""
    return min(MAX_ANSWER_BYTES, _FREE_BYTES + tokens * _BYTES_A_TOKEN)


def max_parts(tokens: int) -> int:
    """The most brackets, braces and colons in an answer that tells of so many tokens; those in texts count, too."""
    return _FREE_PARTS + min(tokens * _PARTS_A_TOKEN, MAX_ANSWER_BYTES)


def takes_long(content: bytes) -> bool:
    """Whether reading an answer may hold the interpreter's lock for longer than other calls can wait."""
    return len(content) > QUICK_BYTES or _parts(content) > QUICK_PARTS


class Nonsense(ValueError):
    """What is no answer, and why."""


def parse(content: bytes, tokens: int) -> dict[str, Any]:
    """Read an answer that may tell of so many tokens: a JSON object.

    Raises:
        Nonsense: it is none, or holds more than makes sense.
    """
    if _parts(content) > max_parts(tokens):
        raise Nonsense(f"more than {max_parts(tokens):,} lists, objects and keys")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise Nonsense(f"{len(content):,} bytes that are not JSON") from None
    if not isinstance(document, dict):
        raise Nonsense(f"JSON that is no object, but {type(document).__name__}")
    return document


def read_document(content: bytes, tokens: int, server: str) -> dict[str, Any]:
    """As `parse`, of a server that has a name.

    Raises:
        BackendError: as `parse` (BACKEND_ANSWER).
    """
    try:
        return parse(content, tokens)
    except Nonsense as error:
        raise garbage(server, str(error)) from None


def _parts(content: bytes) -> int:
    # They take the time: a list costs thirty times the bytes that it is written in, a new key ten times.
    return sum(map(content.count, (b"[", b"{", b":")))


async def apart(size: int, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that reads so many bytes: by a thread if they are many."""
    if size <= APART_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
