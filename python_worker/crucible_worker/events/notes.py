"""Events that no call waits for: written with the next batch, or reported in the log if they cannot be.

A reply never waits for them. They may be lost when the process is killed, and the number that waits is bounded.
"""

from __future__ import annotations

import asyncio

import structlog

from crucible_bridge.events import Event
from crucible_worker.journal import Journal

__all__ = ["FLUSH_SECONDS", "MAX_PENDING", "Notes"]

FLUSH_SECONDS = 0.02
"""Seconds that events are collected before they go to the journal: a commit for each costs more than a small call."""
MAX_PENDING = 8_192
"""Most events that wait or are being written; further ones are counted and dropped."""

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
        """Write an event soon."""
        if len(self._gathered) + self._writing >= MAX_PENDING:
            self._dropped += 1
            return
        self._gathered.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass the collected events to the journal."""
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
