"""Turns of work on the event loop: a little in each pass, so that other calls are served between them.

A thousand items may begin at once, or two hundred calls with a thousand items each. If all ran in one pass, nothing
else would.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

__all__ = ["FewAtOnce", "SharedLock"]


class SharedLock:
    """The turns of those who share it.

    Args:
        a_pass: items in one pass of the event loop; the turn that reaches it is the last of its pass.
    """

    def __init__(self, a_pass: int) -> None:
        self._left = self._a_pass = a_pass
        self._renewing = False
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    async def take(self, items: int = 1) -> None:
        """Wait for a turn with some items, in the order of the calls; without waiting if the pass has room left."""
        loop = asyncio.get_running_loop()
        if self._left > 0 and not self._waiting:
            self._left -= items
            self._renew_later(loop)
            return
        turn = loop.create_future()
        self._waiting.append((items, turn))
        await turn

    def _renew_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._renewing:
            self._renewing = True
            loop.call_soon(self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left, self._renewing = self._a_pass, False
        while self._left > 0 and self._waiting:
            items, turn = self._waiting.popleft()
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                self._left -= items
        if self._left < self._a_pass:
            self._renew_later(loop)


class FewAtOnce:
    """Blocks that wait while others are at work: what a burst of calls begins is spread over the time that it takes.

    A block that takes long, as it waits for a file or a child, lets another one begin.

    Args:
        most: blocks that are at work and have not yet taken long.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def begun(self, seconds: float) -> AsyncIterator[None]:
        """A block that begins when there is a place for it, in the order of the calls.

        Args:
            seconds: after which it has taken long.
        """
        await self._places.acquire()
        counts = True

        def free() -> None:
            nonlocal counts
            if counts:
                counts = False
                self._places.release()

        late = asyncio.get_running_loop().call_later(seconds, free)
        try:
            yield
        finally:
            late.cancel()
            free()
