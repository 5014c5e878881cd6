"""Bounds in time for many tasks, by one timer of the event loop.

`asyncio.timeout` makes a timer for each block and cancels it at its end: 4 us, and some 25 us within a gRPC
call, where the processor does other work in between. Calls and samples end long before their time, so here the timer is
not moved.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from types import TracebackType
from typing import Self

__all__ = ["Timeout", "TimeoutQueue"]

_FEW = 64
"""Entries of ended blocks up to which removing them is not worth the time."""


class TimeoutQueue:
    """Blocks with a time bound, in one event loop."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Timeout]] = []  # a heap
        self._numbers = itertools.count()
        self._over = 0
        self._timer: asyncio.TimerHandle | None = None
        self._frozen_at: float | None = None

    def within(self, seconds: float | None) -> Timeout:
        """Bound a block, from now on; with None it is unbounded until it is rescheduled."""
        ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
        return Timeout(self, ends)

    def close(self) -> None:
        """Drop all entries: no block ends by its time any more."""
        self._entries.clear()
        self._over = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def freeze(self) -> None:
        """Let no time pass for any block, until `go_on`."""
        if self._frozen_at is None:
            self._frozen_at = asyncio.get_running_loop().time()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def go_on(self) -> None:
        """Let time pass again: every block ends later by as long as it was frozen."""
        if self._frozen_at is None:
            return
        frozen, self._frozen_at = asyncio.get_running_loop().time() - self._frozen_at, None
        running = {id(bound): bound for _, _, bound in self._entries if bound.running}
        self._entries, self._over = [], 0
        for bound in running.values():
            if (ends := bound.when()) is not None:
                bound.reschedule(ends + frozen)
                heapq.heappush(self._entries, (ends + frozen, next(self._numbers), bound))
        if self._entries:
            self._set(self._entries[0][0])

    def _enter(self, bound: Timeout, ends: float) -> None:
        heapq.heappush(self._entries, (ends, next(self._numbers), bound))
        if self._frozen_at is None and (self._timer is None or ends < self._timer.when()):
            self._set(ends)

    def _left(self) -> None:
        self._over += 1
        if self._over > _FEW and self._over * 2 > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].running]
            heapq.heapify(self._entries)
            self._over = 0

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._frozen_at is None:
            self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        entries, now = self._entries, asyncio.get_running_loop().time()
        while entries and (entries[0][0] <= now or not entries[0][2].running):
            _, _, bound = heapq.heappop(entries)
            if not bound.running:
                self._over = max(0, self._over - 1)
            elif (ends := bound.when()) is not None and ends > now:  # it was put off
                heapq.heappush(entries, (ends, next(self._numbers), bound))
            elif ends is not None:
                bound.expire()
        if entries:
            self._set(entries[0][0])


class Timeout:
    """Ends a block by its time, as `asyncio.timeout` does: with TimeoutError, by cancelling the task that runs it.

    A block that another task cancels as well ends as cancelled.
    """

    __slots__ = ("_alarms", "_cancelling", "_ends", "_expired", "_task", "running")

    def __init__(self, alarms: TimeoutQueue, ends: float | None) -> None:
        self._alarms, self._ends, self._expired = alarms, ends, False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.running = False
        """Whether the block is running, and its time is not over."""

    def when(self) -> float | None:
        """When it ends, by the loop's clock; None if it does not."""
        return self._ends

    def expired(self) -> bool:
        """Whether the block ended by its time."""
        return self._expired

    def reschedule(self, ends: float | None) -> None:
        """Set another time for its end."""
        before, self._ends = self._ends, ends
        # A later time is checked when the earlier one has come.
        if self.running and ends is not None and (before is None or ends < before):
            self._alarms._enter(self, ends)

    def expire(self) -> None:
        """Its time is over."""
        assert self._task is not None
        self.running, self._expired = False, True
        self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling, self.running = task, task.cancelling(), True
        if self._ends is not None:
            self._alarms._enter(self, self._ends)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._expired:
            if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise TimeoutError from error
        else:
            self.running = False
            if self._ends is not None:
                self._alarms._left()
