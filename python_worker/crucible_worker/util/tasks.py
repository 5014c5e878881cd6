"""Tasks of an event loop: bounds in time by one timer, turns of work, and when work begins again after an error.

`asyncio.timeout` makes a timer for each block and cancels it at its end: 4 us, and some 25 us within a gRPC
call, where the processor does other work in between. Calls and samples end long before their time, so here the timer is
not moved.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import heapq
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from crucible_bridge.types import BackgroundTask
from crucible_worker.util.error_reporter import ErrorReporter

__all__ = [
    "FIRST_PAUSE_SECONDS",
    "LONGEST_PAUSE_SECONDS",
    "Background",
    "Backoff",
    "FewAtOnce",
    "SharedLock",
    "Timeout",
    "TimeoutQueue",
    "retrieve_error",
    "to_its_end",
]

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures in a row: doubled with each of them, up to a longest time.

    Example: `Backoff(1.0, 60.0).after(3)` is 4.0.
    """

    first_seconds: float
    """After the first failure."""
    longest_seconds: float
    """After any number of them, at most."""

    def after(self, failures: int) -> float:
        """Seconds after so many failures, one or more."""
        # The exponent is bounded: a float would overflow after a thousand failures.
        return min(self.first_seconds * 2.0 ** min(failures - 1, 60), self.longest_seconds)

    def drawn_after(self, failures: int) -> float:
        """Between half of that and all of it: what failed together does not come again together."""
        longest = self.after(failures)
        return random.uniform(longest / 2, longest)


# What a worker does as long as it runs: a task that meets an unforeseen error is logged, and begins again.

FIRST_PAUSE_SECONDS = 1.0
"""Seconds between the first failure of a task and its next beginning; doubled with each failure that follows."""
LONGEST_PAUSE_SECONDS = 60.0
"""The most of that. A task that has run for longer begins with the first pause again."""

_log = structlog.get_logger(__name__)


class Background:
    """The tasks of one worker, in its event loop."""

    def __init__(self) -> None:
        self._failed: dict[str, BackgroundTask] = {}
        self._failures = ErrorReporter()

    @property
    def failed(self) -> tuple[BackgroundTask, ...]:
        """The tasks that have failed, in the order of their first failures."""
        return tuple(self._failed.values())

    def keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin a task, and again each time it fails; it ends when `run` returns, or when it is cancelled.

        Args:
            name: what it does, in one word: "retention".
            run: makes what is run.
        """
        return asyncio.create_task(self._kept(name, run), name=name)

    async def _kept(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        backoff, failures = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), 0
        while True:
            began = time.monotonic()
            try:
                await run()
                return
            except Exception as error:  # whatever it is, the worker needs the task
                failures = 1 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else failures + 1
                self._note(name, error, backoff.after(failures))
            await asyncio.sleep(backoff.after(failures))

    def _note(self, name: str, error: Exception, pause: float) -> None:
        error_id = self._failures.logged(_log, "background_task_failed", error, task=name, retry_seconds=pause)
        known = self._failed.setdefault(name, BackgroundTask(name=name))
        self._failed[name] = dataclasses.replace(
            known, failures=known.failures + 1, last_failure_unix_ns=time.time_ns(), error_id=error_id
        )


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of what nothing may wait for any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


# Turns of work on the event loop: a little in each pass, so that other calls are served between them.
#
# A thousand items may begin at once, or two hundred calls with a thousand items each. If all ran in one pass, nothing
# else would.


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
        self._freezes = 0

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
        """Let no time pass for any block, until `go_on` was called as often as this."""
        self._freezes += 1
        if self._frozen_at is None:
            self._frozen_at = asyncio.get_running_loop().time()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def go_on(self) -> None:
        """Let time pass again: every block ends later by as long as it was frozen."""
        self._freezes = max(0, self._freezes - 1)
        if self._frozen_at is None or self._freezes:
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

    __slots__ = ("_cancelling", "_ends", "_expired", "_task", "_timeouts", "running")

    def __init__(self, timeouts: TimeoutQueue, ends: float | None) -> None:
        self._timeouts, self._ends, self._expired = timeouts, ends, False
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
            self._timeouts._enter(self, ends)

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
            self._timeouts._enter(self, self._ends)
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
                self._timeouts._left()


async def to_its_end(function: Callable[..., _T], *arguments: object) -> _T:
    """Apply a function in a thread; if this task is cancelled, once it has ended: it changes files."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise
