"""Replies of a host to its worker."""

from __future__ import annotations

import socket
import threading
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_worker.children.messages import error_to_map, pack

__all__ = ["Replies"]


class Replies:
    """Sends frames to the worker, one at a time, from any thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def send(self, identity: int, result: Any) -> None:
        """Send a result or an error for the request of that id."""
        if isinstance(result, BridgeError):
            frame = pack({"id": identity, "error": error_to_map(result)})
        else:
            frame = pack({"id": identity, "result": result})
        with self._lock:
            self._end.sendall(frame)
