"""Reads the event log at the pace of each reader: only committed events are sent, and no reader slows a writer.

Pages are read and encoded in the few threads that the journal has for streams. The event loop only passes them to gRPC:
when the loop encoded the pages of fifty streams in one iteration, a health probe waited for several such iterations,
which took seconds. One reader may also have the events that this worker itself has written.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

import structlog

from crucible_bridge.errors import FailedPrecondition, OutOfRange
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import SampleResult
from crucible_worker.journal import Journal
from crucible_worker.journal.queries import (
    EVENT_PAGE_BYTES,
    Extent,
    Head,
    Reads,
    SnapshotReads,
    extent_of,
    head,
    read_events,
    sample_of_event,
)

__all__ = [
    "EXAMINED_EVENTS",
    "FLUSH_SECONDS",
    "IDLE_PAGE_SECONDS",
    "LONGEST_REST_SECONDS",
    "MAX_SPANS",
    "OWN_PAGE_EVENTS",
    "PAGE_EVENTS",
    "REST_TIMES",
    "Attach",
    "EventFilter",
    "EventPage",
    "FindResult",
    "Look",
    "OwnEvents",
    "follow",
    "rest_seconds",
]

PAGE_EVENTS = 512
"""Events in a page at most."""
EXAMINED_EVENTS = 65_536
"""Events that one read examines at most: some 10 ms, after which another stream has the thread."""
FLUSH_SECONDS = 0.01
"""Shortest time between two pages at the log's end, so that a page has several events."""
REST_TIMES = 4.0
"""A stream at the log's end rests so many times as long as it has waited for its page. If many streams wait for each
other, each then sends more events per page, and together they leave time for the worker's calls."""
LONGEST_REST_SECONDS = 0.1
"""Longest rest: a drain leaves streams 0.2 s for the last events."""
IDLE_PAGE_SECONDS = 1.0
"""Seconds between two empty pages of a stream when its filter lets nothing through; `ended` is called then as well."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Committed events in order, as stored in the journal."""

    records: Sequence[tuple[int, bytes]]
    """Sequence and encoded event; the encoded event does not contain its sequence."""
    log_id: str
    """The log's identity."""
    through_sequence: int
    """The last sequence examined, filtered ones included."""


FindResult: TypeAlias = Callable[[str, int, str, int, int], SampleResult | None]
"""Returns the result of a sample, see `sample_of_event`."""
Attach: TypeAlias = Callable[[bytes, FindResult], bytes]
"""Adds the result of its sample to a stored event."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a stream lets through, and what is sent with them."""

    number: int | None = None
    """Only this evaluation's."""
    kinds: tuple[EventKind, ...] = ()
    """Only these kinds; all if empty."""
    without_kind: EventKind | None = None
    """All but this kind."""
    run_id: str | None = None
    """Only this run's."""
    new_kinds: bool = False
    """Also events of `NEW_KINDS`; those of `kinds` in any case."""
    attach: Attach | None = None
    """Adds the result of a sample to its event; None to leave events unchanged."""
    page_bytes: int = EVENT_PAGE_BYTES
    """A page ends at this size in any case."""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """The position of a stream, at one moment of the journal."""

    log: Head
    """The log."""
    position: int
    """The last sequence examined."""
    extent: Extent | None
    """The evaluation that the stream follows; None for all."""


T = TypeVar("T")


async def follow(
    journal: Journal,
    *,
    after_sequence: int,
    log_id: str,
    only: EventFilter,
    ended: Callable[[Look], Awaitable[bool]],
    pack: Callable[[EventPage], T],
) -> AsyncGenerator[T, None]:
    """Yield pages of the log, the first at once, empty ones now and then, until `ended` returns true.

    Args:
        journal: the journal.
        after_sequence: begin after this one; 0 for everything retained.
        log_id: the log that the sequence belongs to; unchecked if empty.
        only: what to let through.
        ended: called whenever the log's end is reached; may raise to end the stream.
        pack: turns a page into what is yielded; called in a thread.

    Raises:
        FailedPrecondition: the journal has another log.
        OutOfRange: the next events are no longer retained, or the position is beyond the log's end.
        NotFound: the evaluation was removed.
    """
    position, fresh = after_sequence, True
    told, told_at = after_sequence, 0.0
    while True:
        seen, now = journal.commits.count, time.monotonic()
        due = told if now - told_at >= IDLE_PAGE_SECONDS else None
        look, page = await journal.read_stream(_read_page, position, only, log_id, pack, fresh=fresh, empty_after=due)
        log_id = look.log.log_id  # a stream is of one log, even if the journal is set back meanwhile
        read = time.monotonic()
        if page is not None:
            told, told_at = look.position, now
            yield page
        position, fresh = look.position, False
        if position < look.log.sequence:
            continue
        if await ended(look):
            if position > told:
                yield pack(EventPage(records=(), log_id=look.log.log_id, through_sequence=position))
            return
        await journal.commits.wait(seen, IDLE_PAGE_SECONDS)
        await asyncio.sleep(rest_seconds(read - now) - (time.monotonic() - now))


def rest_seconds(waited: float) -> float:
    """Seconds between the requests for two pages at the log's end, by the time that the first page took."""
    return max(FLUSH_SECONDS, min(REST_TIMES * waited, LONGEST_REST_SECONDS))


def _read_page(
    connection: SnapshotReads,
    position: int,
    only: EventFilter,
    log_id: str,
    pack: Callable[[EventPage], T],
    *,
    fresh: bool,
    empty_after: int | None,
) -> tuple[Look, T | None]:
    """Read the next page, packed; none if it is empty, unless it is the first or goes beyond `empty_after`."""
    # The head and the events are of the same moment.
    with connection.snapshot():
        log = head(connection)
        # Before a read from there: a position may be larger than SQLite's integers.
        _check(log, log_id, position, fresh)
        extent = None if only.number is None else extent_of(connection, only.number)
        records, through = _read(connection, log, extent, log.oldest - 1 if fresh and position == 0 else position, only)
    page = None
    if records or fresh or (empty_after is not None and through > empty_after):
        page = pack(EventPage(records=records, log_id=log.log_id, through_sequence=through))
    return Look(log, through, extent), page


def _read(
    source: Reads, log: Head, extent: Extent | None, after: int, only: EventFilter
) -> tuple[list[tuple[int, bytes]], int]:
    """Events after a sequence, and the last sequence examined; for one evaluation, from its first to its last event."""
    first, last = (log.oldest, log.sequence) if extent is None else (extent.first_sequence, extent.last_sequence)
    start, end = max(after, first - 1), min(last, log.sequence)
    if start >= end:
        return [], max(after, log.sequence)
    through = min(end, start + EXAMINED_EVENTS)
    records, examined = read_events(
        source,
        after=start,
        through=through,
        number=only.number,
        kinds=only.kinds,
        without_kind=only.without_kind,
        run_id=only.run_id,
        new_kinds=only.new_kinds,
        limit=PAGE_EVENTS,
        page_bytes=min(EVENT_PAGE_BYTES, only.page_bytes),
    )
    if only.attach is not None:
        records, examined = _attached(source, records, examined, only.attach, min(EVENT_PAGE_BYTES, only.page_bytes))
    # The evaluation has no events after its last one.
    return records, log.sequence if examined >= end else examined


def _attached(
    source: Reads, records: Sequence[tuple[int, bytes]], examined: int, attach: Attach, page_bytes: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Events with the results of their samples, no more once they have so many bytes; and the last one examined."""
    page: list[tuple[int, bytes]] = []
    size = 0
    for sequence, record in records:
        page.append((sequence, attach(record, functools.partial(sample_of_event, source, sequence))))
        size += len(page[-1][1])
        if size >= page_bytes and len(page) < len(records):
            return page, sequence
    return page, examined


def _check(log: Head, log_id: str, position: int, fresh: bool) -> None:
    if log_id and log_id != log.log_id:
        raise FailedPrecondition(
            f"is {log_id!r}, this journal's log is {log.log_id!r}: sequences of one have no meaning in the other",
            reason=Reason.OTHER_LOG,
            field="log_id",
            metadata={"log_id": log.log_id},
        )
    if position > log.sequence:
        raise OutOfRange(
            f"is {position}, the log ends at {log.sequence}",
            reason=Reason.BEYOND_LOG,
            field="after_sequence",
            metadata={"last_sequence": str(log.sequence), "log_id": log.log_id},
        )
    if position < log.oldest - 1 and not (fresh and position == 0):
        raise OutOfRange(
            f"is {position}, the oldest event retained is {log.oldest}",
            reason=Reason.NO_LONGER_RETAINED,
            field="after_sequence",
            metadata={"oldest_sequence": str(log.oldest), "log_id": log.log_id},
        )


# The events that this worker itself has written, for one reader; each is returned until it is taken.
#
# The log belongs to all workers of the machine. If each of them has a reader, each reports what it wrote: together they
# report everything, and nothing twice.

MAX_SPANS = 65_536
"""Ranges of the log that are remembered while no reader takes them; ranges without other workers' events in between
are merged."""
OWN_PAGE_EVENTS = 256
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
            self.log_id, records, examined = await self._journal.read_stream(_own_page, after, through, kinds)
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


def _own_page(
    connection: SnapshotReads, after: int, through: int, kinds: Sequence[EventKind]
) -> tuple[str, list[tuple[int, bytes]], int]:
    # The identity and the events are of the same moment.
    with connection.snapshot():
        records, examined = read_events(connection, after=after, through=through, kinds=kinds, limit=OWN_PAGE_EVENTS)
        return head(connection).log_id, records, examined
