"""Messages between the worker and the process in a sandbox: four bytes of length, and JSON in UTF-8.

Half of a surrogate pair, which a program's text may hold, is written as the three bytes that it would be.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ENVELOPE_BYTES",
    "LENGTH_BYTES",
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

LENGTH_BYTES = 4
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
    data = written(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


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
    length = _exactly(channel, LENGTH_BYTES)
    if length is None:
        return None
    data = _exactly(channel, int.from_bytes(length, "big"))
    return None if data is None else json.loads(data)


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
