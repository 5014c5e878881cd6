"""Lets gRPC's polling thread run while the event loop is busy.

For each event that thread writes a byte to a socket. The loop reads one byte in each of its iterations, though it then
handles all events. If more than one event comes in an iteration, bytes are left over. Some 280 of them fill the socket:
the thread then blocks, and takes one event from the network in each iteration of the loop. With such a backlog of other
calls' events, single health probes waited for 5 s and more, while the loop itself was never late.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable
from typing import Any

__all__ = ["Wakeups"]

_HANDLER = "_handle_events"
"""Name of gRPC's callback, which the loop calls when a byte has arrived."""
_MANY = 64 * 1024


class Wakeups:
    """Reads all waiting bytes, while gRPC alone reads one; used in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the readers that are added to the loop from now on."""
        self.readers = 0
        """Number of gRPC's readers that were added to the loop."""
        self._add_reader = loop.add_reader
        loop.add_reader = self._adding

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Wakeups:
        """The instance of a loop; several workers may share it."""
        there = getattr(loop.add_reader, "__self__", None)
        return there if isinstance(there, cls) else cls(loop)

    def _adding(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        of_grpc = getattr(getattr(callback, "func", None), "__name__", "") == _HANDLER
        if of_grpc and isinstance(fd, socket.socket):
            self.readers += 1
            callback = functools.partial(_for_each_byte, fd, callback)
        self._add_reader(fd, callback, *args)


def _for_each_byte(reader: socket.socket, handle: Callable[..., Any], *args: Any) -> None:
    """Handle events once for each byte that waits. An event is queued before its byte is written.

    The handler raises at an event of a loop that is closed, and leaves the events behind it in the queue. So every byte
    that is read has a turn of the handler; else those events would wait until one more comes. Loops in other threads
    read from the same socket, and each handles the events of all.
    """
    with contextlib.suppress(BlockingIOError):  # another loop was faster: it handles the events
        for _ in range(len(reader.recv(_MANY, socket.MSG_PEEK))):
            handle(*args)
