"""What the evaluator and the process of a task say to each other: JSON in frames.

The process runs foreign code, and the lists and maps of JSON can be counted before any is made.

The evaluator begins with an order. The process then asks (`op` "ask", with an `id` that the answer bears) and tells how
far it is (`op` "count", with `done` and `total`) until it ends with one message, `op` "found" or "failed".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crucible_worker.children.frames import frame

__all__ = ["MAX_CONTAINERS", "MAX_FRAME_BYTES", "pack", "unpack"]

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""A longer frame is neither sent nor read: no prompt that a model has room for is."""
MAX_CONTAINERS = 1 << 20
"""Lists and maps in a frame that is read, brackets and braces in texts among them."""


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame: header and body. Text may hold what is no valid Unicode, numbers are finite.

    Raises:
        ValueError: a number is not finite, or the frame would be longer than `MAX_FRAME_BYTES`.
    """
    return frame(json.dumps(message, allow_nan=False).encode(), MAX_FRAME_BYTES)


def unpack(body: bytes) -> dict[str, Any]:
    """A frame's body as a map.

    Raises:
        ValueError: it is no map in JSON, or holds more lists and maps than any message.
    """
    # A list costs thirty times the bytes that it is written in, and reading JSON holds the interpreter's lock.
    if body.count(b"[") + body.count(b"{") > MAX_CONTAINERS:
        raise ValueError(f"a message of more than {MAX_CONTAINERS:,} lists and maps")
    try:
        message = json.loads(body)
    except RecursionError:
        raise ValueError("a message that is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError(f"a message that is a {type(message).__name__}")
    return message
