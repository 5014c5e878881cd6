"""A task's process, its end of the line to the worker."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Self

from crucible_worker.evaluators.inspect.frames import HEADER, pack, unpack

__all__ = ["Line"]


class Line:
    """Asks the worker, any number of questions at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._listening: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()
        """Set when the worker wants no more than what there is."""

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Speak over a socket."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end))

    async def receive(self) -> dict[str, Any]:
        """The order, which comes first; answers are listened to from then on."""
        order = await self._next()
        self._listening = asyncio.create_task(self._listen())
        return order

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            ValueError: the question is too long to be sent.
        """
        self._last_id += 1
        identity = self._last_id
        frame = pack({"op": "ask", "id": identity, **question})
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            self._writer.write(frame)
            await self._writer.drain()
            return await future
        finally:
            del self._waiting[identity]

    async def tell(self, message: dict[str, Any]) -> None:
        """Say what came of the order."""
        self._writer.write(pack(message))
        await self._writer.drain()

    async def closed(self) -> None:
        """Wait until the worker has closed its end, which ends this process."""
        assert self._listening is not None
        await self._listening

    async def _next(self) -> dict[str, Any]:
        (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        return unpack(await self._reader.readexactly(length))

    async def _listen(self) -> None:
        try:
            while True:
                answer = await self._next()
                if answer.get("op") == "stop":
                    self.stopped.set()
                    continue
                future = self._waiting.get(answer["id"])
                if future is not None and not future.done():
                    future.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            # The worker is not interested any more; a task's own cleaning up would only take time.
            os._exit(0)
