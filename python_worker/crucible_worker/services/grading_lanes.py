"""The threads of GradingService: what is large is parsed, written, scored and extracted there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["LARGE_REQUEST_BYTES", "SLICE_SECONDS", "THREADS", "Lanes"]

LARGE_REQUEST_BYTES = 16 * 1024
"""Requests from here on are parsed by a thread, which also writes their responses: some hundred items take a while."""

SLICE_SECONDS = 0.05
"""For so long, and for the item begun then, a thread scores or extracts before it looks whether the call still runs and
lets others have their turn."""

THREADS = 2
"""Large calls at work at once, of each kind of work."""

R = TypeVar("R")
T = TypeVar("T")


class Lanes:
    """Three of them: scoring many texts must not keep others' requests from being parsed, nor a short call waiting."""

    def __init__(self) -> None:
        self._codec = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-codec")
        self._short = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-short")
        self._long = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="grading-long")

    def close(self) -> None:
        """Let the threads go."""
        for threads in (self._codec, self._short, self._long):
            threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, data: bytes, work: Callable[[], T]) -> T:
        """Do a request's parsing or its answer's writing, in a thread where its size says so."""
        if len(data) < LARGE_REQUEST_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._codec, work)

    async def sliced(self, work: Callable[[], Iterator[R]]) -> list[R]:
        """All that an iterator yields, in a thread and a slice of time at once: a call that has ended is left there.

        The first slice has threads of its own, so that a short call waits for no long one.
        """
        loop, results = asyncio.get_running_loop(), []
        following = await loop.run_in_executor(self._short, _begun, work, results)
        while following is not None:
            following = await loop.run_in_executor(self._long, _slice, following, results)
        return results


def _begun(work: Callable[[], Iterator[R]], results: list[R]) -> Iterator[R] | None:
    return _slice(work(), results)


def _slice(following: Iterator[R], results: list[R]) -> Iterator[R] | None:
    """Add what an iterator yields in a slice of time, at least one; None where that was all."""
    end = time.monotonic() + SLICE_SECONDS
    for result in following:
        results.append(result)
        if time.monotonic() >= end:
            return following
    return None
