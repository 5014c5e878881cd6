"""What worker and host say to each other: length-prefixed msgpack, errors included.

A request is a map with `id` and `op`; its answer bears the same id and either `result` or `error`. Token ids and
log-probabilities travel as the bytes of little-endian int64 and float64 arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgpack
import numpy as np

from crucible_bridge import errors
from crucible_bridge.errors import BackendError, BridgeError

__all__ = [
    "HEADER",
    "MAX_FRAME_BYTES",
    "TOKEN_BYTES",
    "error_from_map",
    "error_to_map",
    "floats_from_bytes",
    "floats_to_bytes",
    "pack",
    "read_frame",
    "tokens_from_bytes",
    "tokens_to_bytes",
    "unpack",
]

HEADER = struct.Struct("<I")
"""Length of the body that follows, bytes."""
MAX_FRAME_BYTES = 1 << 30
"""A longer frame is a sign of a broken pipe, not of a request."""
TOKEN_BYTES = 8
"""Of a token id."""

_CLASSES: dict[str, type[BridgeError]] = {
    name: kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), BridgeError)
}


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame: header and body."""
    body: bytes = msgpack.packb(message)  # pyright: ignore[reportAssignmentType]: None is for streaming alone
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """A frame's body as a map."""
    return msgpack.unpackb(body)


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next frame of a blocking stream; None at its end, within a frame too."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    return unpack(body) if len(body) == length else None


def error_to_map(error: BridgeError) -> dict[str, Any]:
    """An error, ready to be packed."""
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "reason": error.reason,
        "retryable": error.retryable,
    }


def error_from_map(fields: Mapping[str, Any]) -> BridgeError:
    """The error that `error_to_map` was given."""
    kind = _CLASSES.get(fields["kind"], BackendError)
    error = kind.__new__(kind)
    # Past the subclasses' constructors, which take their arguments in different orders.
    BridgeError.__init__(
        error, fields["message"], field=fields["field"], reason=fields["reason"], retryable=fields["retryable"]
    )
    return error


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
