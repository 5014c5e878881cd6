"""Where the messages of calls are parsed and written: on the event loop, or in a thread if they are large."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LARGE_BYTES", "THREADS", "Offload"]

LARGE_BYTES = 64 * 1024
"""A message from this size is parsed or written in a thread: it may take milliseconds, which a probe would wait."""

THREADS = 2
"""For all services but grading, which has its own: with each one at work, the event loop waits longer for its turn."""

T = TypeVar("T")


class Offload:
    """The threads for large messages; used in one event loop."""

    def __init__(self) -> None:
        """Start none: they start with the first large message."""
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="messages")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Do work on a message of so many bytes: here, or in a thread if it is large."""
        return work() if size < LARGE_BYTES else await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work in a thread: it is large whatever the size of the message."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the threads, once no call is open."""
        self._threads.shutdown(wait=False, cancel_futures=True)
