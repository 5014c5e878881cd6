"""Reading the event log at one's own pace: nobody is sent anything that is not committed, and nobody slows a writer."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from crucible_bridge.errors import FailedPrecondition, OutOfRange
from crucible_bridge.events import EventKind
from crucible_worker.runs.journal import Journal
from crucible_worker.runs.journal.queries import Head, head, read_events

__all__ = ["FLUSH_SECONDS", "IDLE_PAGE_SECONDS", "PAGE_EVENTS", "EventFilter", "EventPage", "follow"]

PAGE_EVENTS = 512
"""Events in a page at most."""
FLUSH_SECONDS = 0.01
"""Shortest time between two pages at the log's end, so that they gather events."""
IDLE_PAGE_SECONDS = 1.0
"""How often a stream whose filter lets nothing through says how far it has looked, and its watcher is asked."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Committed events in order, as the journal keeps them."""

    records: Sequence[tuple[int, bytes]]
    """Sequence and encoded event; the sequence is not inside."""
    log_id: str
    """The log's identity."""
    through_sequence: int
    """The last sequence examined, filtered ones included."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a stream lets through."""

    number: int | None = None
    """Only this evaluation's."""
    kinds: tuple[EventKind, ...] = ()
    """Only these kinds; all if empty."""
    without_kind: EventKind | None = None
    """Not this kind."""
    run_id: str | None = None
    """Only this run's."""
    new_kinds: bool = False
    """Also the kinds that joined the catalogue later; those of `kinds` in any case."""


async def follow(
    journal: Journal,
    *,
    after_sequence: int,
    log_id: str,
    only: EventFilter,
    ended: Callable[[Head, int], Awaitable[bool]],
) -> AsyncGenerator[EventPage, None]:
    """Yield pages of the log, the first at once, empty ones now and then, until `ended` says so.

    Args:
        journal: the journal.
        after_sequence: begin after this one; 0 for everything retained.
        log_id: the log that it belongs to; unchecked if empty.
        only: what to let through.
        ended: asked whenever the log's end is reached, with the log and the position; may raise to end the stream.

    Raises:
        FailedPrecondition: the journal has another log.
        OutOfRange: what comes next is no longer retained, or the position lies beyond the log's end.
    """
    position, fresh = after_sequence, True
    told, told_at = after_sequence, 0.0
    while True:
        seen = journal.news.count
        log, records, through = await journal.read(_read_page, position, only, log_id, fresh=fresh)
        now = time.monotonic()
        if records or fresh or (through > told and now - told_at >= IDLE_PAGE_SECONDS):
            told, told_at = through, now
            yield EventPage(records=records, log_id=log.log_id, through_sequence=through)
        position, fresh = through, False
        if position < log.sequence:
            continue
        if await ended(log, position):
            if position > told:
                yield EventPage(records=(), log_id=log.log_id, through_sequence=position)
            return
        await journal.news.wait(seen, IDLE_PAGE_SECONDS)
        await asyncio.sleep(FLUSH_SECONDS - (time.monotonic() - now))


def _read_page(
    connection: sqlite3.Connection, position: int, only: EventFilter, log_id: str, *, fresh: bool
) -> tuple[Head, list[tuple[int, bytes]], int]:
    # One read transaction: the head and the events are of the same moment.
    connection.execute("BEGIN")
    try:
        log = head(connection)
        # Before anything is read from there: a position may be larger than any that SQLite knows.
        _check(log, log_id, position, fresh)
        after = log.oldest - 1 if fresh and position == 0 else position
        records, through = read_events(
            connection,
            after=after,
            through=log.sequence,
            number=only.number,
            kinds=only.kinds,
            without_kind=only.without_kind,
            run_id=only.run_id,
            new_kinds=only.new_kinds,
            limit=PAGE_EVENTS,
        )
    finally:
        connection.execute("COMMIT")
    return log, records, through


def _check(log: Head, log_id: str, position: int, fresh: bool) -> None:
    if log_id and log_id != log.log_id:
        raise FailedPrecondition(
            f"is {log_id!r}, this journal's log is {log.log_id!r}: sequences of one mean nothing in the other",
            reason="OTHER_LOG",
            field="log_id",
            metadata={"log_id": log.log_id},
        )
    if position > log.sequence:
        raise OutOfRange(
            f"is {position}, the log ends at {log.sequence}",
            reason="BEYOND_LOG",
            field="after_sequence",
            metadata={"last_sequence": str(log.sequence), "log_id": log.log_id},
        )
    if position < log.oldest - 1 and not (fresh and position == 0):
        raise OutOfRange(
            f"is {position}, the oldest event retained is {log.oldest}",
            reason="NO_LONGER_RETAINED",
            field="after_sequence",
            metadata={"oldest_sequence": str(log.oldest), "log_id": log.log_id},
        )
