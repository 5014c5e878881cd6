"""Calls that training waits for go before the reading of data sets, which nobody waits for so closely.

Threads that parse and hash want the interpreter all the time; the threads of a call want it in dozens of short turns,
one at each statement of SQLite, and lose most races for it. While two data sets were read, a step of a plan was
answered after 90 ms (the median, on two cores); after 10 where the reading stands still meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

__all__ = ["YIELD_SECONDS", "CallPriority"]

YIELD_SECONDS = 0.05
"""How long reading stands still at most; then it goes on for as long, however many calls there are."""


class CallPriority:
    """Who goes first in one process."""

    def __init__(self) -> None:
        self._calls = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._on_until = 0.0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Go first inside the block. On the event loop only."""
        self._calls += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._nobody.set()

    def yield_to_calls(self) -> None:
        """Stand still while others go first, within bounds; for a thread to call again and again."""
        if self._nobody.is_set() or time.monotonic() < self._on_until:
            return
        if not self._nobody.wait(YIELD_SECONDS):
            # Two threads may both set it: either time is as good as the other.
            self._on_until = time.monotonic() + YIELD_SECONDS
