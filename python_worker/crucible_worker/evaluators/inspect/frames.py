"""Messages between the evaluator and the process of a task: JSON in frames.

The process runs foreign code, and JSON's lists and maps can be counted before any is created.

The evaluator begins with an order. The process then sends questions (`op` "ask", with an `id` that the answer repeats)
and its progress (`op` "count", with `done` and `total`), until it ends with one message, `op` "found" or "failed".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crucible_worker.children.frames import frame

__all__ = ["MAX_CONTAINERS", "MAX_FRAME_BYTES", "pack", "unpack"]

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""A longer frame is neither sent nor read; every prompt that fits a model is shorter."""
MAX_CONTAINERS = 1 << 20
"""Lists and maps in a received frame, counting brackets and braces in texts too."""


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame: header and body. Text may contain invalid Unicode; numbers are finite.

    Raises:
        ValueError: a number is not finite, or the frame would be longer than `MAX_FRAME_BYTES`.
    """
    return frame(json.dumps(message, allow_nan=False).encode(), MAX_FRAME_BYTES)


def unpack(body: bytes) -> dict[str, Any]:
    """A frame's body as a map.

    Raises:
        ValueError: it is not a map in JSON, or has more lists and maps than any message.
    """
    # A list takes thirty times the bytes of its text, and reading JSON holds the GIL.
    if body.count(b"[") + body.count(b"{") > MAX_CONTAINERS:
        raise ValueError(f"a message of more than {MAX_CONTAINERS:,} lists and maps")
    try:
        message = json.loads(body)
    except RecursionError:
        raise ValueError("a message that is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError(f"a message that is a {type(message).__name__}")
    return message
