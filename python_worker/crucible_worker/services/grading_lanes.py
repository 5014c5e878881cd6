"""The threads of GradingService: they parse, serialize, score and extract what is large."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["LARGE_REQUEST_BYTES", "LONG_THREADS", "SLICE_SECONDS", "THREADS", "Lanes"]

LARGE_REQUEST_BYTES = 16 * 1024
"""A thread parses requests from this size and serializes their responses: some hundred items take a while."""

SLICE_SECONDS = 0.005
"""Seconds, and the rest of the item begun then, that a thread scores or extracts before it checks whether the call is
still open, and other calls have their turn.

The event loop begins each slice, so a busy loop is delayed by at most a slice of each thread in a pass. At 50 ms, and
two threads for long calls, the median health check took 470 ms under the mixed load of `benchmarks/overload.py`; now 4.
"""

THREADS, LONG_THREADS = 2, 1
"""Concurrent large calls, for each kind of work; and those that score or extract for longer than a slice."""

R = TypeVar("R")
T = TypeVar("T")


class Lanes:
    """Three thread pools: scoring many texts must delay neither the parsing of other requests nor a short call."""

    def __init__(self) -> None:
        self._codec = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-codec")
        self._short = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-short")
        self._long = concurrent.futures.ThreadPoolExecutor(LONG_THREADS, thread_name_prefix="grading-long")

    def close(self) -> None:
        """End the threads."""
        for threads in (self._codec, self._short, self._long):
            threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, data: bytes, work: Callable[[], T]) -> T:
        """Parse a request or serialize its answer, in a thread if the request is large."""
        if len(data) < LARGE_REQUEST_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._codec, work)

    async def sliced(self, work: Callable[[], Iterator[R]]) -> list[R]:
        """All that an iterator yields, computed in a thread, slice by slice of time; stops if the call has ended.

        The first slice has separate threads, so that a short call waits for no long one.
        """
        loop, results = asyncio.get_running_loop(), []
        following = await loop.run_in_executor(self._short, _first_slice, work, results)
        while following is not None:
            following = await loop.run_in_executor(self._long, _slice, following, results)
        return results


def _first_slice(work: Callable[[], Iterator[R]], results: list[R]) -> Iterator[R] | None:
    return _slice(work(), results)


def _slice(following: Iterator[R], results: list[R]) -> Iterator[R] | None:
    """Add what an iterator yields in a slice of time, at least one; returns None if that was all."""
    end = time.monotonic() + SLICE_SECONDS
    for result in following:
        results.append(result)
        if time.monotonic() >= end:
            return following
    return None
