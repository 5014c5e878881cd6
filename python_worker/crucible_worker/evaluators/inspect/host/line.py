"""The connection of a task's process to the worker."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Self

from crucible_worker.children.process import Channel, Questions
from crucible_worker.evaluators.inspect.frames import pack, unpack

__all__ = ["WorkerClient"]


class WorkerClient:
    """Sends questions to the worker, any number at once."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._questions = channel, Questions(channel)
        self._listening: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()
        """Set when the worker wants only the results so far, or the task is refused."""
        self.refused = ""
        """Why the task is refused; empty if it is not."""

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Use this socket."""
        return cls(await Channel.over(end))

    async def receive(self) -> dict[str, Any]:
        """The order, which comes first; from then on answers are received."""
        order = await self._channel.receive()
        if order is None:
            os._exit(0)
        self._listening = asyncio.create_task(self._listen())
        return unpack(order)

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question, and wait for the answer.

        Raises:
            ValueError: the question is too long to be sent.
        """
        return await self._questions.ask(lambda identity: pack({"op": "ask", "id": identity, **question}))

    def refuse(self, why: str) -> None:
        """End the task before its first answer."""
        self.refused = why
        self.stopped.set()

    async def tell(self, message: dict[str, Any]) -> None:
        """Send the result of the order."""
        self._channel.send(pack(message))
        await self._channel.drained()

    async def closed(self) -> None:
        """Wait until the worker has closed its end, which ends this process."""
        assert self._listening is not None
        await self._listening

    async def _listen(self) -> None:
        while (body := await self._channel.receive()) is not None:
            answer = unpack(body)
            if answer.get("op") == "stop":
                self.stopped.set()
            else:
                self._questions.answer(answer["id"], answer)
        # The worker does not need the result any more; cleaning up would only take time.
        os._exit(0)
