"""The thread of GradingService: it parses, serializes, scores and extracts what is large.

It is one, whatever the number of cores: a thread needs the interpreter's lock, and the event loop has to wait for all
threads each time that it asks for it. With five, and slices of 5 ms, a health check waited for up to 0.7 s under the
mixed load of `benchmarks/overload.py`, seconds after 200 callers had begun; with one, for 14 ms. Its priority is lower
than that of the event loop: where both wait for one core, refusals took 33 ms at the 99th percentile, now 13.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from crucible_worker.children.bounds import lower_priority

__all__ = ["LARGE_REQUEST_BYTES", "SLICE_SECONDS", "Lanes"]

LARGE_REQUEST_BYTES = 16 * 1024
"""A thread parses requests from this size and serializes their responses: some hundred items take a while."""

SLICE_SECONDS = 0.002
"""Seconds, and the rest of the item begun then, that the thread scores or extracts before it checks whether the call is
still open, and other calls have their turn."""

_SHORT, _LONG = 0, 1

R = TypeVar("R")
T = TypeVar("T")


class Lanes:
    """Two queues for one thread, which takes from them in turn: a short call is not behind all that long ones wait for.

    Used in one event loop.
    """

    def __init__(self) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "grading", lower_priority)
        self._waiting: tuple[_Queue, _Queue] = (collections.deque(), collections.deque())
        self._running, self._last = False, _LONG

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, data: bytes, work: Callable[[], T]) -> T:
        """Parse a request or serialize its answer, in the thread if the request is large."""
        return work() if len(data) < LARGE_REQUEST_BYTES else await self._in_thread(_SHORT, work)

    async def sliced(self, work: Callable[[], Iterator[R]]) -> list[R]:
        """All that an iterator yields, computed in the thread, slice by slice of time; stops if the call has ended."""
        results: list[R] = []
        following = await self._in_thread(_SHORT, lambda: _slice(work(), results))
        while following is not None:
            following = await self._in_thread(_LONG, functools.partial(_slice, following, results))
        return results

    async def _in_thread(self, lane: int, work: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[lane].append((result, work))
        self._go_on()
        return await result

    def _go_on(self) -> None:
        """Begin what is next, if the thread is idle: of the other queue, if anything waits there."""
        for lane in (1 - self._last, self._last):
            while self._waiting[lane] and not self._running:
                result, work = self._waiting[lane].popleft()
                if not result.done():  # else its call has ended
                    self._running, self._last = True, lane
                    done = asyncio.get_running_loop().run_in_executor(self._thread, work)
                    done.add_done_callback(functools.partial(self._done, result))

    def _done(self, result: asyncio.Future[T], done: asyncio.Future[T]) -> None:
        self._running = False
        if done.cancelled():  # the worker ends
            result.cancel()
            return
        error = done.exception()
        if not result.done():
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
        self._go_on()


_Queue = collections.deque[tuple[asyncio.Future[Any], Callable[[], Any]]]


def _slice(following: Iterator[R], results: list[R]) -> Iterator[R] | None:
    """Add what an iterator yields in a slice of time, at least one; returns None if that was all."""
    end = time.monotonic() + SLICE_SECONDS
    for result in following:
        results.append(result)
        if time.monotonic() >= end:
            return following
    return None
