"""Calls that training waits for have priority over the reading of data sets, which is less urgent.

Threads that parse and hash need the interpreter all the time; the threads of a call need it in dozens of short turns,
one at each statement of SQLite, and lose most races for it. While two data sets were read, a step of a plan was
answered after 90 ms (the median, on two cores); it takes 10 ms if the reading pauses meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

__all__ = ["YIELD_SECONDS", "CallPriority"]

YIELD_SECONDS = 0.05
"""Longest pause of the reading; then it runs for as long, however many calls there are."""


class CallPriority:
    """Gives calls priority over reading threads in one process."""

    def __init__(self) -> None:
        self._calls = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self._on_until = 0.0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have priority inside the block. On the event loop only."""
        self._calls += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._nobody.set()

    def yield_to_calls(self) -> None:
        """Pause while calls have priority, within bounds; a reading thread calls it repeatedly."""
        if self._nobody.is_set() or time.monotonic() < self._on_until:
            return
        if not self._nobody.wait(YIELD_SECONDS):
            # Two threads may both set it: either time will do.
            self._on_until = time.monotonic() + YIELD_SECONDS
