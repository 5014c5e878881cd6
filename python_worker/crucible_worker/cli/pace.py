"""How fast counted work is done, and how long the rest takes: "5.2 a second, 12 s left"."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable

__all__ = ["Pace", "time_text"]

WINDOW_SECONDS = 10.0
"""The rate is that of so many last seconds."""
LOOK_SECONDS = 0.5
"""Counts within a shorter time replace each other."""


class Pace:
    """The rate of one count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the first count."""
        self._clock = clock
        self._looks: collections.deque[tuple[float, float]] = collections.deque()

    def forget(self) -> None:
        """Begin anew: nothing could be done for a while, which says nothing of the rate."""
        self._looks.clear()

    def of(self, done: float, total: float | None) -> str:
        """The rate and the time left, once something was done; empty before, and once all is done.

        Args:
            done: how much is done now.
            total: of how much; None if that is not known.
        """
        now, looks = self._clock(), self._looks
        if looks and done < looks[-1][1]:
            looks.clear()  # work began anew
        if len(looks) == 1 and done == looks[0][1]:
            looks.clear()  # nothing was counted yet: the model is being loaded, which says nothing of the rate
        if not looks or now - looks[-1][0] >= LOOK_SECONDS:
            looks.append((now, done))
        # The last look before the window stays: the window is the least time.
        while len(looks) > 2 and now - looks[1][0] >= WINDOW_SECONDS:
            looks.popleft()
        began, before = looks[0]
        if done <= before or now <= began or (total is not None and done >= total):
            return ""
        rate = (done - before) / (now - began)
        left = "" if total is None else f", {time_text((total - done) / rate)} left"
        return f"{rate:,.1f} a second{left}"


def time_text(seconds: float) -> str:
    """A time for people: "12 s", "3 min 5 s", "2 h 10 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
