"""The order in which callers get a child: first come, first served, except that patient callers wait a little."""

from __future__ import annotations

import asyncio
import heapq
import itertools

__all__ = ["Turns"]


class Turns:
    """A limited number of turns at once; more callers wait in line.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def acquire(self, patience: float = 0.0) -> None:
        """Wait for a turn; callers without patience that come up to `patience` seconds later go first."""
        if self._free and not self._line:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._line, (loop.time() + patience, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it came with the cancellation
            raise

    def release(self) -> None:
        """Give a turn back, to the next in line."""
        while self._line:
            _, _, turn = heapq.heappop(self._line)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
