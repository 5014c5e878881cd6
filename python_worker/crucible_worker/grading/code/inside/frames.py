"""Messages between the worker and the process in a sandbox: JSON in UTF-8, in frames.

Half of a surrogate pair, which a program's text may contain, is written as its three bytes.
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
"""Bytes of a message on a zygote's control socket, in either direction."""
ENVELOPE_BYTES = 8192
"""Bytes of an answer without its values, at most: the nonce and the description of an exception."""
SIZED = ("value", "changed", "nodes")
"""Parts of an answer that count against the limit on returned values, each separately."""
READY = b"ready"
"""The first message of a zygote."""
SCRATCH = "/tmp"
"""The only writable folder of a sandbox."""


def pack(message: Any) -> bytes:
    """A message as a frame."""
    return frame(written(message))


def written(value: Any) -> bytes:
    """A value as written in a message; this length counts against the limit on returned values."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def most_bytes(answer: Mapping[str, Any], limit: int) -> int:
    """The length limit of an answer in which each of `SIZED` may have so many bytes."""
    return limit * (1 + sum(part in answer for part in SIZED[1:])) + ENVELOPE_BYTES


def send(channel: socket.socket, message: Any) -> None:
    """Send a message; blocks."""
    channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
    """Wait for a message; None if there will be none."""
    body = receive_body(channel)
    return None if body is None else json.loads(body)
