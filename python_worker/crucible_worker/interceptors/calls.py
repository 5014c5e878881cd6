"""The calls open in this worker: counted for admission, and told when it is time to go."""

from __future__ import annotations

import asyncio
import collections

from crucible_bridge.errors import ResourceExhausted
from crucible_worker.interceptors.methods import Method
from crucible_worker.runs.admission import draining_error

__all__ = ["RETRY_AFTER_SECONDS", "Calls"]

RETRY_AFTER_SECONDS = 1.0
"""When a refused caller may come again: another worker, or a call that ended, has room by then."""


class Calls:
    """Calls and streams open in this worker, by service; of one event loop."""

    def __init__(self, *, max_calls: int, max_streams: int) -> None:
        """Bound the calls and the streams open at once, of each service for itself."""
        self._limits = {False: max_calls, True: max_streams}
        self._open: collections.Counter[tuple[str, bool]] = collections.Counter()
        self._timers: set[asyncio.Timeout] = set()
        self._cut_at: float | None = None
        self.draining = False
        """Whether new calls are refused."""

    @property
    def open(self) -> int:
        """Calls and streams open now, those of health and of the worker itself not counted."""
        return self._open.total()

    def enter(self, method: Method) -> None:
        """Count a call in.

        Raises:
            Unavailable: the worker drains.
            ResourceExhausted: the service has no room.
        """
        if self.draining:
            raise draining_error()
        slot, limit = (method.service, method.streams), self._limits[method.streams]
        if self._open[slot] >= limit:
            what = "streams" if method.streams else "calls"
            raise ResourceExhausted(
                f"{method.service} has {limit} {what} open already",
                reason=f"TOO_MANY_{what.upper()}",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._open[slot] += 1

    def leave(self, method: Method) -> None:
        """Count a call out."""
        self._open[method.service, method.streams] -= 1

    def watch(self, timer: asyncio.Timeout) -> None:
        """Take a call's running timer into care, so that a drain can end it."""
        self._timers.add(timer)
        if self._cut_at is not None:
            _end_by(timer, self._cut_at)

    def forget(self, timer: asyncio.Timeout) -> None:
        """Let a timer go."""
        self._timers.discard(timer)

    def cut(self, after: float) -> None:
        """End every call that still waits `after` seconds from now, as draining."""
        self._cut_at = asyncio.get_running_loop().time() + after
        for timer in self._timers:
            _end_by(timer, self._cut_at)


def _end_by(timer: asyncio.Timeout, when: float) -> None:
    due = timer.when()
    if not timer.expired() and (due is None or due > when):
        timer.reschedule(when)
