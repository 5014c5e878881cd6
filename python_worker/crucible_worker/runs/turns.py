"""Turns of items that begin: a few in each pass of the event loop, so that other calls are served between them.

A thousand items may begin at once, and each may fail at once. If they all ran in one pass, nothing else would.
"""

from __future__ import annotations

import asyncio
import collections

__all__ = ["ITEMS_A_PASS", "Turns"]

ITEMS_A_PASS = 8
"""Items that begin in one pass; one that fails by a bug takes some 2 ms, most of it for its traceback in the log."""


class Turns:
    """The turns of one batch."""

    def __init__(self) -> None:
        self._left = ITEMS_A_PASS
        self._renewing = False
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    async def take(self) -> None:
        """Wait for a turn, in the order of the calls; without waiting if the pass has one left."""
        loop = asyncio.get_running_loop()
        if self._left and not self._waiting:
            self._left -= 1
            self._renew_later(loop)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _renew_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._renewing:
            self._renewing = True
            loop.call_soon(self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left, self._renewing = ITEMS_A_PASS, False
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its item was cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < ITEMS_A_PASS:
            self._renew_later(loop)
