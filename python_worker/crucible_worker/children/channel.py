"""One end of a socket to another process, in an event loop: frames out and in, and questions that wait for answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Self

from crucible_worker.children.frames import HEADER, MAX_FRAME_BYTES, length_of

__all__ = ["Channel", "Questions"]


class Channel:
    """Frames to and from another process. Made by `over`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Use a socket, which is closed with the channel."""
        end.setblocking(False)
        try:
            return cls(*await asyncio.open_unix_connection(sock=end))
        except BaseException:
            end.close()
            raise

    def send(self, frame: bytes) -> None:
        """Send a frame without waiting. Nothing is sent to a process that is gone; the next `receive` reports that."""
        if not self._writer.is_closing():
            self._writer.write(frame)

    async def drained(self) -> None:
        """Wait until what was sent is on its way, or the other process is gone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self, max_bytes: int = MAX_FRAME_BYTES) -> bytes | None:
        """The next body; None at the end, within a frame too.

        Raises:
            TooLong: it exceeds `max_bytes`.
        """
        try:
            length = length_of(await self._reader.readexactly(HEADER.size), max_bytes)
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def end_input(self) -> None:
        """Treat what has arrived as the whole input, even if a process still has the other end open."""
        with contextlib.suppress(OSError):
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def fail(self, error: Exception) -> None:
        """Have `receive` raise an error."""
        self._reader.set_exception(error)

    def close(self) -> None:
        """Close it; what was sent still leaves."""
        self._writer.close()

    def abort(self) -> None:
        """Close it at once."""
        self._writer.transport.abort()


class Questions:
    """Questions on a channel; each has an id, which its answer repeats."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, frame_of: Callable[[int], bytes]) -> Any:
        """Send the frame that is made for a new id, and wait for its answer; raises what `fail` is given."""
        self._last_id += 1
        identity = self._last_id
        frame = frame_of(identity)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            self._channel.send(frame)
            await self._channel.drained()
            return await future
        finally:
            del self._waiting[identity]

    def answer(self, identity: Any, value: Any) -> None:
        """Hand an answer to its caller, if there still is one."""
        if (future := self._open(identity)) is not None:
            future.set_result(value)

    def fail(self, identity: Any, error: Exception) -> None:
        """Have a caller raise an error."""
        if (future := self._open(identity)) is not None:
            future.set_exception(error)

    def fail_all(self, error_of: Callable[[], Exception]) -> None:
        """Have every caller raise a separate error: there will be no more answers."""
        for identity in list(self._waiting):
            self.fail(identity, error_of())

    def _open(self, identity: Any) -> asyncio.Future[Any] | None:
        future = self._waiting.get(identity)
        return None if future is None or future.done() else future
