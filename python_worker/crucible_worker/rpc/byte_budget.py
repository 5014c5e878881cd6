"""Bounds the bytes of all requests in work, and of those that arrive without a token."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import time
from collections.abc import Iterator
from pathlib import Path

from crucible_bridge.errors import ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_worker.util.memory import used_bytes
from crucible_worker.util.timeouts import Timeout, TimeoutQueue

__all__ = [
    "ARRIVING_BYTES",
    "ARRIVING_SECONDS",
    "LARGE_BYTES",
    "RETRY_AFTER_SECONDS",
    "SMALL_BYTES",
    "Arrivals",
    "ByteBudget",
    "exhausted",
]

LARGE_BYTES = 1024 * 1024
"""From this size, the freed memory of a request is worth giving back to the system."""

SMALL_BYTES = 64 * 1024
"""Up to this size, a request is never refused for its bytes: a probe, a read or a cancel. Their number is bounded."""

ARRIVING_BYTES = 32 * 1024 * 1024
"""Growth of the process while a message of a few bytes arrives, from which the message is not awaited any longer."""

ARRIVING_SECONDS = 0.02
"""Between two looks at the process: 17 MiB arrive meanwhile at most, over loopback."""

COLLECT_SECONDS = 0.1
"""After the end of such a call, until what has arrived of it is freed, with that of all that end meanwhile."""

RETRY_AFTER_SECONDS = 1.0
"""Seconds after which a refused caller may retry: another worker, or this one, may have room by then."""


class ByteBudget:
    """Room for requests in work; used in one event loop."""

    def __init__(self, most: int) -> None:
        """Have room for `most` bytes."""
        self._most = most
        self._bytes = self._large = 0
        self._large_until = time.monotonic()
        self._waiting: collections.deque[_WaitingMessage] = collections.deque()
        self._waiting_bytes = 0

    def quiet_seconds(self) -> float:
        """How long no request of `LARGE_BYTES` or more has been in work."""
        return 0.0 if self._large else time.monotonic() - self._large_until

    def working_on(self, size: int) -> contextlib.AbstractContextManager[_RequestInWork]:
        """Count the bytes of a request while it is in work.

        Raises:
            ResourceExhausted: requests in work and messages that wait for room have too many bytes already; a single or
                a small request is never refused.
        """
        taken = self._bytes + self._waiting_bytes
        if size > SMALL_BYTES and taken and taken + size > self._most:
            raise self._full(size)
        return _RequestInWork(self, size)

    async def working_on_in_turn(
        self, size: int, alarms: TimeoutQueue, seconds: float
    ) -> contextlib.AbstractContextManager[_RequestInWork]:
        """Wait until there is room for a message of a call that has begun; the caller must enter the result at once.

        A waiting message takes no room, so that calls never wait for each other. Bytes that wait are bounded as well.

        Raises:
            ResourceExhausted: there was no room in time, or too many bytes wait already.
        """
        if size <= SMALL_BYTES or (not self._waiting and self._fits(size)):
            return _RequestInWork(self, size)
        if self._waiting and self._waiting_bytes + size > self._most:
            raise self._full(size)
        waiting, patience = _WaitingMessage(size), alarms.within(seconds)
        self._waiting.append(waiting)
        self._waiting_bytes += size
        try:
            with patience:
                while self._waiting[0] is not waiting or not self._fits(size):
                    waiting.woken.clear()
                    await waiting.woken.wait()
        except TimeoutError:
            if not patience.expired():
                raise
            raise self._full(size) from None
        finally:
            self._waiting.remove(waiting)
            self._waiting_bytes -= size
            self._wake()
        return _RequestInWork(self, size)

    def grow(self, work: _RequestInWork, more: int) -> None:
        """Count further bytes of a request in work: its elements need them, once it is parsed.

        Raises:
            ResourceExhausted: the others have too many bytes already; one that is alone is never refused.
        """
        others = self._bytes - work.size + self._waiting_bytes
        if others and others + work.size + more > self._most:
            raise self._full(work.size + more, others)
        work.add(more)

    def _fits(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._most

    def _wake(self) -> None:
        if self._waiting:
            self._waiting[0].woken.set()

    def _full(self, size: int, taken: int | None = None) -> ResourceExhausted:
        taken = self._bytes + self._waiting_bytes if taken is None else taken
        message = f"the message has {size:,} bytes, and those in work {taken:,} of at most {self._most:,}"
        return exhausted(message, Reason.TOO_MANY_REQUEST_BYTES)


class _WaitingMessage:
    """A message that waits for room."""

    __slots__ = ("size", "woken")

    def __init__(self, size: int) -> None:
        self.size, self.woken = size, asyncio.Event()


class _RequestInWork:
    """A request in work. A class, as a generator would cost each call some microseconds."""

    __slots__ = ("_large", "_room", "size")

    def __init__(self, room: ByteBudget, size: int) -> None:
        self._room, self.size, self._large = room, size, size >= LARGE_BYTES

    def add(self, size: int) -> None:
        """Count further bytes."""
        self.size += size
        self._room._bytes += size

    def __enter__(self) -> _RequestInWork:
        self._room._bytes += self.size
        self._room._large += self._large
        return self

    def __exit__(self, *exc_info: object) -> None:
        room = self._room
        room._bytes -= self.size
        if self._large:
            room._large -= 1
            room._large_until = time.monotonic()
        if room._waiting:
            room._wake()


class Arrivals:
    """Messages that arrive from callers without a token; used in one event loop.

    gRPC looks at a message's size once it has received all of it, and says nothing before. So the memory in use by the
    process is looked at instead, as long as such a message is waited for. A health check as clients send it arrives
    with its call, and is never looked at. Where a process cannot read its own memory (on Linux it can), their time
    alone is bounded.
    """

    def __init__(self) -> None:
        self._grown_from: dict[Timeout, int | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ended: set[Timeout] = set()
        self._collecting: asyncio.TimerHandle | None = None
        self._measured = Path("/proc/self/statm").exists()

    @contextlib.contextmanager
    def bounded(self, arrival: Timeout) -> Iterator[None]:
        """End the arrival early if the process grows meanwhile.

        Raises:
            ResourceExhausted: it did.
        """
        self._grown_from[arrival] = None
        if self._timer is None and self._measured:
            self._wait()
        try:
            with arrival:
                yield
        except TimeoutError:
            if arrival not in self._ended:
                raise
            message = f"the worker's memory grew by more than {ARRIVING_BYTES:,} bytes while the request arrived"
            raise exhausted(message, Reason.TOO_MANY_REQUEST_BYTES) from None
        finally:
            del self._grown_from[arrival]
            self._ended.discard(arrival)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(ARRIVING_SECONDS, self._look)

    def _collect(self) -> None:
        """Free what has arrived: the error of a call that was ended and the call refer to each other."""
        self._collecting = None
        gc.collect()

    def _look(self) -> None:
        self._timer = None
        if not self._grown_from:
            return
        self._wait()
        used = used_bytes()
        for arrival, grown_from in self._grown_from.items():
            if grown_from is None:
                self._grown_from[arrival] = used
            elif used - grown_from > ARRIVING_BYTES and arrival.running:
                self._ended.add(arrival)
                arrival.expire()
                if self._collecting is None:
                    self._collecting = asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._collect)


def exhausted(message: str, reason: str) -> ResourceExhausted:
    """The error of a caller that may retry soon."""
    return ResourceExhausted(message, reason=reason, retry_after=RETRY_AFTER_SECONDS)
