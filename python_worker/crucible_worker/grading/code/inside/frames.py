"""Messages between the worker and whoever runs in a sandbox: four bytes of length, and JSON in ASCII."""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["LENGTH_BYTES", "MAX_ORDER_BYTES", "READY", "SCRATCH", "pack", "receive", "send"]

LENGTH_BYTES = 4
MAX_ORDER_BYTES = 4096
"""Of what a zygote is told on its control socket, and of what it says there."""
READY = b"ready"
"""What a zygote says first."""
SCRATCH = "/tmp"
"""The one folder of a sandbox that can be written to."""


def pack(message: Any) -> bytes:
    """A message as it travels."""
    data = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii")
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


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
