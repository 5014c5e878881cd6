"""What a worker and its hosts exchange: arrays, limits that the host enforces, and replies."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from typing import Any

import numpy as np

from crucible_bridge.errors import BridgeError
from crucible_worker.children.messages import error_to_map, pack
from crucible_worker.util.limits import WorkerLimits

__all__ = [
    "TOKEN_BYTES",
    "HostBounds",
    "Replies",
    "floats_from_bytes",
    "floats_to_bytes",
    "tokens_from_bytes",
    "tokens_to_bytes",
]

# Token ids and log-probabilities are bytes of little-endian int64 and float64.

TOKEN_BYTES = 8
"""Bytes of a token id."""


def tokens_to_bytes(tokens: np.ndarray) -> bytes:
    """Token ids of any integer type, as bytes."""
    return tokens.astype("<i8", copy=False).tobytes()


def tokens_from_bytes(data: bytes) -> np.ndarray:
    """Token ids, shape (n,), int64, read-only."""
    return np.frombuffer(data, "<i8")


def floats_to_bytes(values: np.ndarray) -> bytes:
    """Floats of any precision, as bytes of float64."""
    return values.astype("<f8", copy=False).tobytes()


def floats_from_bytes(data: bytes) -> np.ndarray:
    """Floats, shape (n,), float64, read-only."""
    return np.frombuffer(data, "<f8")


# Replies of a host to its worker.


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostBounds:
    """Limits, with the names of `WorkerLimits`."""

    max_rendered_chars: int
    max_rendering_seconds: float
    max_rendering_bytes: int
    max_checkpoint_seconds: float

    @classmethod
    def of(cls, limits: WorkerLimits) -> HostBounds:
        """The bounds of a worker's limits."""
        return cls(**{field.name: getattr(limits, field.name) for field in dataclasses.fields(cls)})

    @classmethod
    def from_json(cls, text: str) -> HostBounds:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """As an argument of the host."""
        return json.dumps(dataclasses.asdict(self))
