"""The framing between this package's processes: the length of a body in four bytes, then the body.

This module needs the standard library alone: it also runs in the sandbox of programs, where there is nothing else.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

__all__ = ["HEADER", "MAX_FRAME_BYTES", "TooLong", "frame", "length_of", "receive"]

HEADER = struct.Struct("<I")
"""Length of the body that follows, bytes."""
MAX_FRAME_BYTES = 1 << 30
"""A longer frame is a sign of a broken channel. Most callers set a lower bound."""


class TooLong(ValueError):
    """A frame exceeds its bound."""


def frame(body: bytes, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """A body with its header.

    Raises:
        TooLong: the body exceeds `max_bytes`.
    """
    if len(body) > max_bytes:
        raise TooLong(f"a message of {len(body):,} bytes, at most {max_bytes:,} are sent")
    return HEADER.pack(len(body)) + body


def length_of(header: bytes, max_bytes: int = MAX_FRAME_BYTES) -> int:
    """The length that a header announces.

    Raises:
        TooLong: it exceeds `max_bytes`; nothing of the body should be read.
    """
    (length,) = HEADER.unpack(header)
    if length > max_bytes:
        raise TooLong(f"a message of {length:,} bytes, at most {max_bytes:,} are read")
    return length


def receive(
    end: socket.socket,
    max_bytes: int = MAX_FRAME_BYTES,
    *,
    until: float | None = None,
    idle: Callable[[], object] | None = None,
) -> bytes | None:
    """Wait for the next body on a blocking socket; None at its end, within a frame too.

    Args:
        end: the socket.
        max_bytes: of the body.
        until: a time of `time.monotonic`.
        idle: called whenever the socket's own timeout passes; raises to give up.

    Raises:
        TooLong: the body exceeds `max_bytes`.
        TimeoutError: it is not there in time.
        ConnectionError: the other process ended without reading what was sent to it.
    """
    header = _exactly(end, HEADER.size, until, idle)
    return None if header is None else _exactly(end, length_of(header, max_bytes), until, idle)


def _exactly(end: socket.socket, count: int, until: float | None, idle: Callable[[], object] | None) -> bytes | None:
    data = bytearray(min(count, 1 << 20))
    done = 0
    while done < count:
        if until is not None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            end.settimeout(left)
        if done == len(data):  # grows as data arrives: a header alone must not take a gigabyte
            data.extend(bytes(min(count - done, done)))
        try:
            received = end.recv_into(memoryview(data)[done:])
        except TimeoutError:
            if idle is None:
                raise
            idle()
            continue
        if not received:
            return None
        done += received
    return bytes(data)
