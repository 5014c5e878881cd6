"""Bounds the work in the open calls of a method, by its size: the number of calls says little of it.

Two hundred calls of a thousand answers each were 200 open calls, of at most 256, and half a minute of grading.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

from google.protobuf.message import Message

from crucible_bridge.codec.field_ranges import NeedsFallback, content_range
from crucible_bridge.errors import ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_worker.rpc.byte_budget import RETRY_AFTER_SECONDS

__all__ = ["LEAST_RETRY_SECONDS", "MOST_OTHERS", "MOST_RETRY_SECONDS", "UNIT_BYTES", "WorkBound", "counted"]

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
