"""Messages between the worker and the process in a sandbox: JSON in UTF-8, in frames.

Half of a surrogate pair, which a program's text may hold, is written as the three bytes that it would be.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from crucible_worker.children.frames import frame
from crucible_worker.children.frames import receive as receive_body

__all__ = [
    "ENVELOPE_BYTES",
    "MAX_ORDER_BYTES",
    "READY",
    "SCRATCH",
    "SIZED",
    "most_bytes",
    "pack",
    "receive",
    "send",
    "written",
]

MAX_ORDER_BYTES = 4096
"""Of what a zygote is told on its control socket, and of what it says there."""
ENVELOPE_BYTES = 8192
"""At most, of an answer without its values: the nonce and the description of an exception."""
SIZED = ("value", "changed", "nodes")
"""Parts of an answer that count against the limit on returned values, each by itself."""
READY = b"ready"
"""What a zygote says first."""
SCRATCH = "/tmp"
"""The one folder of a sandbox that can be written to."""


def pack(message: Any) -> bytes:
    """A message as it travels."""
    return frame(written(message))


def written(value: Any) -> bytes:
    """A value as it stands in a message; its length is what counts against the limit on returned values."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def most_bytes(answer: Mapping[str, Any], limit: int) -> int:
    """How long an answer may be in which each of `SIZED` may have so many bytes."""
    return limit * (1 + sum(part in answer for part in SIZED[1:])) + ENVELOPE_BYTES


def send(channel: socket.socket, message: Any) -> None:
    """Send a message; blocks."""
    channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
    """Wait for a message; None where there will be none."""
    body = receive_body(channel)
    return None if body is None else json.loads(body)
