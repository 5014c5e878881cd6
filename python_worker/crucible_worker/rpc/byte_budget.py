"""Bounds the bytes of all requests in work, of those that arrive without a token, and the work in calls of a method."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from google.protobuf.message import Message

from crucible_bridge.codec.field_ranges import NeedsFallback, content_range
from crucible_bridge.errors import ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_worker.util.memory import used_bytes
from crucible_worker.util.tasks import Timeout, TimeoutQueue

__all__ = [
    "ARRIVING_BYTES",
    "ARRIVING_SECONDS",
    "LARGE_BYTES",
    "LEAST_RETRY_SECONDS",
    "MOST_OTHERS",
    "MOST_RETRY_SECONDS",
    "RETRY_AFTER_SECONDS",
    "SMALL_BYTES",
    "UNIT_BYTES",
    "Arrivals",
    "ByteBudget",
    "WorkBound",
    "counted",
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
        self, size: int, timeouts: TimeoutQueue, seconds: float
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
        waiting, timeout = _WaitingMessage(size), timeouts.within(seconds)
        self._waiting.append(waiting)
        self._waiting_bytes += size
        try:
            with timeout:
                while self._waiting[0] is not waiting or not self._fits(size):
                    waiting.woken.clear()
                    await waiting.woken.wait()
        except TimeoutError:
            if not timeout.expired():
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


# Bounds the work in the open calls of a method, by its size: the number of calls says little of it.
#
# Two hundred calls of a thousand answers each were 200 open calls, of at most 256, and half a minute of grading.

UNIT_BYTES = 1024
"""So many bytes of a request are as much work as an item."""

MOST_OTHERS = 64
"""Fields of a request besides its items that are read on the event loop, to count its items."""

LEAST_RETRY_SECONDS, MOST_RETRY_SECONDS = 0.1, 30.0
"""Bounds of the time after which a refused caller may retry."""


class WorkBound:
    """The work of one method: what is in its open calls, and at which rate it is done. Used in one event loop."""

    def __init__(
        self,
        name: str,
        most: int,
        size_of: Callable[[bytes], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bound the work.

        Args:
            name: of the method.
            most: how much work may be in open calls.
            size_of: the work in a request.
            clock: seconds.
        """
        self._name, self._most, self._size_of, self._clock = name, most, size_of, clock
        self._open = 0
        self._area, self._area_at = 0.0, 0.0
        """The integral of the open work over time, and up to when."""
        self._unit_seconds: float | None = None
        """In which time a unit of work is done; None until a call has ended."""
        self._ended_at = 0.0
        """When a call has last ended, or the first of the open ones has begun."""

    @property
    def open(self) -> int:
        """Work in open calls."""
        return self._open

    def refuse_if_full(self) -> None:
        """Refuse a call before its message is received.

        Raises:
            ResourceExhausted: there is too much work already.
        """
        if self._open >= self._most:
            raise self._full(0)

    def taken(self, data: bytes) -> contextlib.AbstractContextManager[object]:
        """Count the work in a request while its call is open.

        Raises:
            ResourceExhausted: with the work in open calls it is too much; a call without others is never refused.
        """
        size = self._size_of(data)
        if self._open and self._open + size > self._most:
            raise self._full(size)
        return _WorkingCall(self, size)

    def begin(self, size: int) -> tuple[float, float]:
        """Count work that begins; returns what `end` needs."""
        area, now = self._counted()
        if not self._open:
            self._ended_at = now
        self._open += size
        return area, now

    def end(self, size: int, begun: tuple[float, float], *, done: bool) -> None:
        """Count work that is done, or given up."""
        area, now = self._counted()
        self._open -= size
        self._ended_at = now
        seconds = now - begun[1]
        if not done or not seconds:
            return
        # Little's law: the rate is the mean of the open work, divided by the time that work stays open. It holds from
        # the first call on, also if calls are served in turns, so that many end at about the same time.
        mean = (area - begun[0]) / seconds
        unit_seconds, weight = seconds / mean, size / mean
        before = unit_seconds if self._unit_seconds is None else self._unit_seconds
        self._unit_seconds = before + weight * (unit_seconds - before)

    def _counted(self) -> tuple[float, float]:
        now = self._clock()
        self._area += self._open * (now - self._area_at)
        self._area_at = now
        return self._area, now

    def _full(self, size: int) -> ResourceExhausted:
        message = f"{self._name} has {self._open:,} units of work open, of at most {self._most:,}"
        if size:
            message += f", and this call has {size:,}"
        return ResourceExhausted(message, reason=Reason.TOO_MANY_CALLS, retry_after=self._retry_after(size))

    def _retry_after(self, size: int) -> float:
        """When there may be room: drawn between then and the end of all open work, so that callers do not come at once.

        Until a call has ended, the rate of the work is unknown.
        """
        if self._unit_seconds is None:
            return RETRY_AFTER_SECONDS
        # If none has ended for a while, the work is slower than it was.
        unit_seconds = max(self._unit_seconds, (self._clock() - self._ended_at) / self._open)
        work = random.uniform(min(max(self._open + size - self._most, 0), self._open), self._open)
        return min(max(work * unit_seconds, LEAST_RETRY_SECONDS), MOST_RETRY_SECONDS)


class _WorkingCall:
    """A call with its work."""

    __slots__ = ("_begun", "_bound", "_size")

    def __init__(self, bound: WorkBound, size: int) -> None:
        self._bound, self._size = bound, size
        self._begun = (0.0, 0.0)

    def __enter__(self) -> None:
        self._begun = self._bound.begin(self._size)

    def __exit__(self, kind: object, *exc_info: object) -> None:
        self._bound.end(self._size, self._begun, done=kind is None)


def counted(message: type[Message], field: str, weight: int, most: int) -> Callable[[bytes], int]:
    """A function that gives the work in a request, at least 1: its items and its bytes.

    Args:
        message: the request.
        field: its repeated field of items.
        weight: how much work an item is.
        most: items up to which it counts; a request with more is refused when it is read.
    """
    number = message.DESCRIPTOR.fields_by_name[field].number

    def size_of(data: bytes) -> int:
        return max(1, weight * _count(data, number, most) + len(data) // UNIT_BYTES)

    return size_of


def _count(data: bytes, number: int, most: int) -> int:
    """Contents of a field, up to `most`, which also counts for a request with too many other fields to be read here.

    Those behind something malformed do not count, as the request is refused.
    """
    at = count = 0
    end, tag = len(data), number << 3 | 2
    try:
        for _ in range(most + MOST_OTHERS):
            if at >= end or count == most:
                return count
            size = data[at + 1]
            if data[at] == tag and size < 0x80:  # of most items
                at += 2 + size
                count += 1
            elif data[at] == tag and (high := data[at + 2]) < 0x80:  # of most others
                at += 3 + (size & 0x7F | high << 7)
                count += 1
            else:
                found, content, at = content_range(data, at)
                count += found == number and content is not None
    except (NeedsFallback, IndexError):
        return count
    return most
