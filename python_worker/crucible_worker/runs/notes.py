"""Events that nobody waits for: written with the next batch, told to the operator where they cannot be.

A reply never waits for them, they may be lost when the process is killed, and there is a bound to how many wait.
"""

from __future__ import annotations

import asyncio

import structlog

from crucible_bridge.events import Event
from crucible_worker.runs.journal import Journal

__all__ = ["FLUSH_SECONDS", "MAX_PENDING", "Notes"]

FLUSH_SECONDS = 0.02
"""How long events gather before they are handed to the journal: a commit for each would cost more than a small call."""
MAX_PENDING = 8_192
"""Events that gather or are being written; what comes beyond is counted and dropped."""

_log = structlog.get_logger(__name__)


class Notes:
    """Events on their way to the journal; of one event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gathered: list[Event] = []
        self._writing = 0
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, event: Event) -> None:
        """Have an event written soon."""
        if len(self._gathered) + self._writing >= MAX_PENDING:
            self._dropped += 1
            return
        self._gathered.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Hand what has gathered to the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dropped:
            _log.warning("events_dropped", count=self._dropped, reason="too many wait for the journal")
            self._dropped = 0
        if not self._gathered:
            return
        events, self._gathered = self._gathered, []
        self._writing += len(events)
        # 0: they belong to no evaluation.
        future = self._journal.submit(lambda transaction: transaction.append(0, events))
        future.add_done_callback(lambda done: self._written(done, len(events)))

    def _written(self, done: asyncio.Future[int], count: int) -> None:
        self._writing -= count
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            _log.warning("events_dropped", count=count, reason=str(error))
