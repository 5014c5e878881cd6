"""The events that a worker wrote itself: each is handed out until it is taken, however many workers write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_worker.events import streams
from crucible_worker.events.streams import OwnEvents
from crucible_worker.journal import Journal

KINDS = (EventKind.METRICS_COMPUTED,)


def events(count: int, kind: EventKind = EventKind.METRICS_COMPUTED) -> list[Event]:
    """So many events of one kind."""
    return [Event(kind=kind) for _ in range(count)]


async def write(journal: Journal, count: int, kind: EventKind = EventKind.METRICS_COMPUTED) -> None:
    """Write events, in one transaction."""
    await journal.submit(lambda transaction: transaction.append(0, events(count, kind)))


async def sequences(written: OwnEvents) -> list[int]:
    """The next page, untaken."""
    async with asyncio.timeout(10):
        return [sequence for sequence, _ in await written.page(KINDS)]


async def test_what_is_not_taken_comes_again(tmp_path: Path):
    """A page stays what it was until it is taken, in part or whole."""
    journal = await Journal.open(tmp_path, event_to_record)
    written = OwnEvents(journal)
    await write(journal, 3)

    assert await sequences(written) == [1, 2, 3]
    assert await sequences(written) == [1, 2, 3]
    written.take(2)
    await write(journal, 1)
    assert await sequences(written) == [3, 4]
    written.take(4)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await written.page(KINDS)
    await journal.aclose()


async def test_a_page_tells_the_identity_of_its_log(tmp_path: Path):
    """Who takes a page learns which log its sequences belong to, also after the log has got a new identity."""
    journal = await Journal.open(tmp_path, event_to_record)
    written = OwnEvents(journal)
    for log_id in (journal.log_id, "another"):
        await journal.submit(lambda transaction: transaction.execute("UPDATE head SET log_id = ?", (log_id,)))  # noqa: B023 - awaited here
        await write(journal, 1)
        written.take((await sequences(written))[-1])

        assert written.log_id == journal.log_id
    await journal.aclose()


async def test_other_workers_and_other_kinds_are_passed_over(tmp_path: Path):
    """What another worker wrote in between is not handed out here, nor is another kind."""
    journal, other = [await Journal.open(tmp_path, event_to_record) for _ in range(2)]
    mine, theirs = OwnEvents(journal), OwnEvents(other)
    await write(journal, 2)
    await write(other, 3)
    await write(journal, 2, EventKind.SAMPLE_COMPLETE)
    await write(journal, 1)

    found: list[int] = []
    while len(found) < 3:
        found += await sequences(mine)
        mine.take(found[-1])
    assert found == [1, 2, 8]
    assert await sequences(theirs) == [3, 4, 5]
    for each in (journal, other):
        await each.aclose()


async def test_pages_are_bounded(tmp_path: Path):
    """A long stretch is handed out page by page, in order, without a gap."""
    journal = await Journal.open(tmp_path, event_to_record)
    written = OwnEvents(journal)
    await write(journal, streams.OWN_PAGE_EVENTS + 1)

    page = await sequences(written)
    written.take(page[-1])

    assert page == list(range(1, streams.OWN_PAGE_EVENTS + 1))
    assert await sequences(written) == [streams.OWN_PAGE_EVENTS + 1]
    await journal.aclose()


async def test_memory_is_bounded_while_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Beyond so many stretches the oldest is forgotten; stretches that touch are one."""
    monkeypatch.setattr(streams, "MAX_SPANS", 2)
    journal, other = [await Journal.open(tmp_path, event_to_record) for _ in range(2)]
    written = OwnEvents(journal)
    for _ in range(3):
        await write(journal, 1)
        await write(journal, 1)
        await write(other, 1)

    found: list[int] = []
    while len(found) < 4:
        found += await sequences(written)
        written.take(found[-1])
    assert found == [4, 5, 7, 8]
    for each in (journal, other):
        await each.aclose()
