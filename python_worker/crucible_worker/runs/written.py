"""The events that this worker itself has written, handed to one reader, each until it is taken.

The log belongs to all workers of the machine. Where each of them has a listener of its own, each tells what it wrote:
together they tell everything, and nothing twice.
"""

from __future__ import annotations

import asyncio
import collections
import sqlite3
from collections.abc import Sequence

import structlog

from crucible_bridge.events import EventKind
from crucible_worker.runs.journal import Journal
from crucible_worker.runs.journal.queries import head, read_events

__all__ = ["MAX_SPANS", "PAGE_EVENTS", "Written"]

MAX_SPANS = 65_536
"""Stretches of the log that are remembered while nobody reads; they join where no other worker wrote in between."""
PAGE_EVENTS = 256
"""Events in a page at most."""

_log = structlog.get_logger(__name__)


class Written:
    """Where in the log this worker's own events stand, those not yet taken; of one event loop."""

    def __init__(self, journal: Journal) -> None:
        """Remember what is written from now on."""
        self._journal = journal
        self._spans: collections.deque[tuple[int, int]] = collections.deque()
        self._some = asyncio.Event()
        self.log_id = ""
        """Identity of the log that the last page is of."""
        journal.on_written = self._add

    async def page(self, kinds: Sequence[EventKind]) -> list[tuple[int, bytes]]:
        """Wait for events of these kinds that are not yet taken; sequences and records of the oldest ones, in order.

        Those of other kinds, and those that are no longer retained, are passed over for good.

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
        """Never hand out again what stands up to and with this sequence."""
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
            _log.warning("events_not_told", count=lost_through - lost_after, reason="nobody reads them")
        self._some.set()


def _page(
    connection: sqlite3.Connection, after: int, through: int, kinds: Sequence[EventKind]
) -> tuple[str, list[tuple[int, bytes]], int]:
    # One read transaction: the identity and the events are of the same moment.
    connection.execute("BEGIN")
    try:
        records, examined = read_events(connection, after=after, through=through, kinds=kinds, limit=PAGE_EVENTS)
        return head(connection).log_id, records, examined
    finally:
        connection.execute("COMMIT")
