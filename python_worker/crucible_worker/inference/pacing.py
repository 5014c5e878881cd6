"""How many calls a server gets at once: all of them until it limits their rate, then fewer, and slowly more again.

12:00:01  32 calls are in flight, and the server answers one with 429
12:00:01  no call begins for the time that the server names, else for 0.5 s
12:00:02  16 calls begin; each refusal halves that, down to 1, and doubles the wait while nothing is answered
12:00:09  calls are answered: one more at once after as many answers as there are calls at once
"""

from __future__ import annotations

import asyncio
import collections
import time

from crucible_worker.util.tasks import Backoff

__all__ = ["LIMITED_ATTEMPTS", "RATE_BACKOFF", "CallPace"]

RATE_BACKOFF = Backoff(0.5, 15.0)
"""Seconds after refusals in a row, unless the server names another time."""
LIMITED_ATTEMPTS = 20
"""Most tries of a call that has no time limit, and that is refused for its rate while others are answered."""


class CallPace:
    """The calls of one server; used in one event loop."""

    def __init__(self) -> None:
        """Let everything through."""
        self.refusals = 0
        """Bursts of refusals in a row: since then no call was answered."""
        self._limit: int | None = None
        self._in_flight = self._since_growth = 0
        self._most = 1
        self._refused_at = self._ends = float("-inf")
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def limit(self) -> int | None:
        """Most calls at once; None if there is no limit."""
        return self._limit

    async def begin(self) -> None:
        """Wait until a call may be sent; `end` has to follow. Calls are let through in the order of their arrival."""
        if not self._waiting and self._is_free:
            self._took()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._arm()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end()
            elif turn in self._waiting:  # else it was taken out between the cancellation and this
                self._waiting.remove(turn)
            raise

    def end(self) -> None:
        """A call has ended, however."""
        self._in_flight -= 1
        self._grant()

    def answered(self) -> None:
        """A call was answered."""
        self.refusals = 0
        if self._limit is None:
            return
        self._since_growth += 1
        if self._since_growth >= self._limit:
            self._since_growth = 0
            self._limit = self._limit + 1 if self._limit < self._most else None

    def refused(self, began: float, seconds: float | None) -> None:
        """The server limits the rate of its calls.

        Args:
            began: when the refused call was sent, by `time.monotonic`: those of one burst count once.
            seconds: the time until the next call that the server names; None if it names none.
        """
        now = time.monotonic()
        if began >= self._refused_at:
            self._refused_at = now
            self.refusals += 1
            self._since_growth = 0
            self._limit = max(1, (self._in_flight if self._limit is None else self._limit) // 2)
        if seconds is None:
            seconds = RATE_BACKOFF.after(max(self.refusals, 1))
        self._ends = max(self._ends, now + seconds)

    def close(self) -> None:
        """Let all calls through at once."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._grant()

    @property
    def _is_free(self) -> bool:
        below = self._limit is None or self._in_flight < self._limit
        return self._closed or (below and time.monotonic() >= self._ends)

    def _took(self) -> None:
        self._in_flight += 1
        self._most = max(self._most, self._in_flight)

    def _grant(self) -> None:
        while self._waiting and self._is_free:
            turn = self._waiting.popleft()
            if not turn.done():
                self._took()
                turn.set_result(None)
        if self._waiting:
            self._arm()

    def _arm(self) -> None:
        """Look again when the wait is over."""
        left = self._ends - time.monotonic()
        if left > 0 and self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(left, self._woke)

    def _woke(self) -> None:
        self._timer = None
        self._grant()
