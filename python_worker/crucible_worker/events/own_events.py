"""The events that this worker itself has written, for one reader; each is returned until it is taken.

The log belongs to all workers of the machine. If each of them has a reader, each reports what it wrote: together they
report everything, and nothing twice.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence

import structlog

from crucible_bridge.events import EventKind
from crucible_worker.journal import Journal
from crucible_worker.journal.queries import SnapshotReads, head, read_events

__all__ = ["MAX_SPANS", "PAGE_EVENTS", "OwnEvents"]

MAX_SPANS = 65_536
"""Ranges of the log that are remembered while no reader takes them; ranges without other workers' events in between
are merged."""
PAGE_EVENTS = 256
"""Most events in a page."""

_log = structlog.get_logger(__name__)


class OwnEvents:
    """Ranges of the log with this worker's events that are not yet taken; used in one event loop."""

    def __init__(self, journal: Journal) -> None:
        """Remember what is written from now on."""
        self._journal = journal
        self._spans: collections.deque[tuple[int, int]] = collections.deque()
        self._some = asyncio.Event()
        self.log_id = ""
        """Identity of the log of the last page."""
        journal.on_written = self._add

    async def page(self, kinds: Sequence[EventKind]) -> list[tuple[int, bytes]]:
        """Wait for events of these kinds that are not yet taken; returns sequences and records of the oldest, in order.

        Events of other kinds, and those that are no longer retained, are skipped for good.

        Raises:
            JournalUnavailable: the journal cannot be read just now.
        """
        while True:
            await self._some.wait()
            after, through = self._spans[0]
            self.log_id, records, examined = await self._journal.read_stream(_page, after, through, kinds)
            if records:
                return records
            self.take(examined)

    def take(self, through: int) -> None:
        """Never return events up to and including this sequence again."""
        while self._spans and self._spans[0][0] < through:
            _, end = self._spans.popleft()
            if through < end:
                self._spans.appendleft((through, end))
        if not self._spans:
            self._some.clear()

    def _add(self, after: int, through: int) -> None:
        if self._spans and self._spans[-1][1] == after:
            after, _ = self._spans.pop()
        self._spans.append((after, through))
        if len(self._spans) > MAX_SPANS:
            lost_after, lost_through = self._spans.popleft()
            _log.warning("events_not_told", count=lost_through - lost_after, reason="no reader takes them")
        self._some.set()


def _page(
    connection: SnapshotReads, after: int, through: int, kinds: Sequence[EventKind]
) -> tuple[str, list[tuple[int, bytes]], int]:
    # The identity and the events are of the same moment.
    with connection.snapshot():
        records, examined = read_events(connection, after=after, through=through, kinds=kinds, limit=PAGE_EVENTS)
        return head(connection).log_id, records, examined
