"""The pipes between a host and its worker, as the host sees them."""

from __future__ import annotations

import os
import threading
from typing import Any, BinaryIO

from crucible_bridge.errors import BridgeError
from crucible_worker.backends.local.frames import error_to_map, pack

__all__ = ["Replies", "claim_pipes"]


def claim_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for frames: fd 0 becomes empty, and fd 1 stderr, for libraries that print."""
    requests, replies = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


class Replies:
    """The way back: one frame at a time, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, identity: int, result: Any) -> None:
        """Send a result or an error for the request of that id."""
        if isinstance(result, BridgeError):
            frame = pack({"id": identity, "error": error_to_map(result)})
        else:
            frame = pack({"id": identity, "result": result})
        with self._lock:
            self._stream.write(frame)
            self._stream.flush()
