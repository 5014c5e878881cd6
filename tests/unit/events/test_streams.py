"""Following the log: pages of bounded size, filters, and where a page says that it has looked."""

import asyncio
import threading

import pytest

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import FailedPrecondition, NotFound, OutOfRange
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.engine import claims
from crucible_worker.events import streams
from crucible_worker.events.streams import PAGE_EVENTS, EventFilter, follow
from crucible_worker.history import lifecycle
from crucible_worker.journal import journal as journals
from crucible_worker.journal.queries import find_by_number, head
from tests.tables import rows
from tests.unit.journal.journals import append, claim, commit, open_journal, owner_locks, request


async def pages_of(journal, after=0, log_id="", only=None):
    """Every page up to the log's present end."""

    async def ended(look):
        return look.position >= look.log.sequence

    only = only or EventFilter()
    stream = follow(journal, after_sequence=after, log_id=log_id, only=only, ended=ended, pack=lambda page: page)
    return [page async for page in stream]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (PAGE_EVENTS - 1, [PAGE_EVENTS - 1]),
        (PAGE_EVENTS, [PAGE_EVENTS]),
        (PAGE_EVENTS + 1, [PAGE_EVENTS, 1]),
        (2 * PAGE_EVENTS + 1, [PAGE_EVENTS, PAGE_EVENTS, 1]),
    ],
)
async def test_pages_hold_at_most_page_events(journal, count, sizes):
    """Pages are full until the last; every sequence is there once, in order, and each page says how far it goes."""
    if count:
        await append(journal, count)
    pages = await pages_of(journal)
    assert [len(page.records) for page in pages] == sizes
    assert [sequence for page in pages for sequence, _ in page.records] == list(range(1, count + 1))
    assert [page.through_sequence for page in pages] == [sum(sizes[: index + 1]) for index in range(len(sizes))]
    assert {page.log_id for page in pages} == {journal.log_id}


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_filtered_pages_go_to_the_end(journal, extra):
    """With a filter a page is full of what it lets through; the last one says the log's end, whatever lies there."""
    wanted = PAGE_EVENTS + extra
    for _ in range(2):
        await append(journal, 3, run_id="other")
        await append(journal, wanted // 2, run_id="mine")
    await append(journal, wanted % 2, run_id="mine")
    await append(journal, 5, run_id="other")
    pages = await pages_of(journal, only=EventFilter(run_id="mine"))
    assert sum(len(page.records) for page in pages) == wanted
    assert all(len(page.records) <= PAGE_EVENTS for page in pages)
    if extra:
        assert pages[-1].through_sequence == (await journal.read(head)).sequence


async def test_filters(journal):
    """By kinds, without a kind, and run; all of them together."""
    for run_id in ("x", "y"):
        for kind in (EventKind.METRICS_COMPUTED, EventKind.GRADING_COMPLETE):
            await append(journal, 1, kind=kind, run_id=run_id)

    async def found(**fields):
        (page,) = await pages_of(journal, only=EventFilter(**fields))
        assert page.through_sequence == 4
        return [sequence for sequence, _ in page.records]

    assert await found() == [1, 2, 3, 4]
    assert await found(kinds=(EventKind.GRADING_COMPLETE,)) == [2, 4]
    assert await found(without_kind=EventKind.GRADING_COMPLETE) == [1, 3]
    assert await found(kinds=(EventKind.GRADING_COMPLETE,), run_id="y") == [4]


LATER = EventKind.EVALUATOR_START


async def mixed(journal, *counts, **fields):
    """Write so many events, in turn of a kind that was always there and of one that joined later."""
    for index, count in enumerate(counts):
        await append(journal, count, kind=LATER if index % 2 else EventKind.METRICS_COMPUTED, **fields)


@pytest.mark.parametrize(
    ("fields", "sequences"),
    [
        ({}, [1, 4]),
        ({"new_kinds": True}, [1, 2, 3, 4, 5]),
        ({"kinds": (LATER,)}, [2, 3, 5]),
        ({"kinds": (LATER, EventKind.METRICS_COMPUTED)}, [1, 2, 3, 4, 5]),
        ({"kinds": (EventKind.METRICS_COMPUTED,), "new_kinds": True}, [1, 4]),
        ({"without_kind": LATER, "new_kinds": True}, [1, 4]),
        ({"run_id": "other", "new_kinds": True}, []),
    ],
)
async def test_new_kinds_come_to_those_who_ask(journal, fields, sequences):
    """All of them by `new_kinds`, one by its name; for the others the position passes them."""
    await mixed(journal, 1, 2, 1, 1)
    (page,) = await pages_of(journal, only=EventFilter(**fields))
    assert [sequence for sequence, _ in page.records] == sequences
    assert page.through_sequence == 5


@pytest.mark.parametrize("first", [0, PAGE_EVENTS - 1, PAGE_EVENTS, PAGE_EVENTS + 1])
@pytest.mark.parametrize("later", [1, PAGE_EVENTS - 1, PAGE_EVENTS, PAGE_EVENTS + 1])
async def test_new_kinds_keep_their_places_in_pages(journal, first, later):
    """Every event once and in order, at most a page's worth in each, which says how far it goes."""
    await mixed(journal, first, later, first, later)
    pages = await pages_of(journal, only=EventFilter(new_kinds=True))
    count = 2 * (first + later)
    assert [sequence for page in pages for sequence, _ in page.records] == list(range(1, count + 1))
    assert all(len(page.records) <= PAGE_EVENTS for page in pages)
    assert [page.through_sequence for page in pages if page.records] == [
        page.records[-1][0] for page in pages if page.records
    ]


async def test_a_worker_of_the_release_before_reads_no_new_kind(journal):
    """It reads the table of its own catalogue: what it passes on to its callers, they know."""
    await mixed(journal, 2, 1, 1)
    sql = "SELECT sequence, record FROM events WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?"
    rows = await journal.read(lambda connection: connection.execute(sql, (0, 4, 512)).fetchall())
    assert [(sequence, event_from_record(sequence, record).kind) for sequence, record in rows] == [
        (sequence, EventKind.METRICS_COMPUTED) for sequence in (1, 2, 4)
    ]


async def test_from_a_position(journal):
    """What comes after a position, for the positions around its bounds."""
    await append(journal, 3)
    for position in range(4):
        (page,) = await pages_of(journal, after=position, log_id=journal.log_id)
        assert [sequence for sequence, _ in page.records] == list(range(position + 1, 4))
    with pytest.raises(OutOfRange) as caught:
        await pages_of(journal, after=4)
    assert caught.value.metadata == {"last_sequence": "3", "log_id": journal.log_id}


async def test_another_log_is_refused_before_its_position(journal):
    """The log is compared first: a position of another one means nothing, be it beyond the end or not."""
    with pytest.raises(FailedPrecondition) as caught:
        await pages_of(journal, after=10**9, log_id="another")
    assert caught.value.reason == "OTHER_LOG"


async def test_trimmed_positions(journal):
    """0 means the oldest that is retained; any other position before that is refused with the oldest sequence."""
    await append(journal, 10)

    def trim(transaction):
        transaction.execute("DELETE FROM events WHERE sequence < 6")
        transaction.execute("UPDATE head SET oldest = 6")

    await journal.submit(trim)
    for position in (0, 5):
        (page,) = await pages_of(journal, after=position)
        assert [sequence for sequence, _ in page.records] == [6, 7, 8, 9, 10]
    for position in (1, 4):
        with pytest.raises(OutOfRange) as caught:
            await pages_of(journal, after=position)
        assert caught.value.metadata["oldest_sequence"] == "6"


async def evaluated(journal, folder, *, before=0, after=0, samples=3, end=True):
    """The row of an evaluation of some samples, with so many events of others before and after its own."""
    await append(journal, before)
    with owner_locks(folder) as locks:
        row = (await claim(journal, locks)).row
        for position in range(samples):
            await commit(journal, row, position)
        if end:

            def cancel(transaction):
                lifecycle.end(transaction, locks, row, EvaluationState.CANCELLED, Problem(reason="R", message="m"), 0)

            await journal.submit(cancel)
    await append(journal, after)
    return await journal.read(find_by_number, row.number)


@pytest.mark.parametrize("before", [0, 1, 700])
@pytest.mark.parametrize("after", [0, 1, 700])
@pytest.mark.parametrize("end", [True, False])
async def test_an_evaluation_is_read_from_its_first_event_to_its_last(journal, tmp_path, before, after, end):
    """Its events alone, from any position, and the page says that the whole log has been examined."""
    row = await evaluated(journal, tmp_path, before=before, after=after, end=end)
    own = list(range(row.first_sequence, row.last_sequence + 1))
    assert own[0] == before + 1
    last = (await journal.read(head)).sequence
    assert last == before + len(own) + after
    for position in {0, before, own[0], own[1], own[-1], last}:
        pages = await pages_of(journal, after=position, only=EventFilter(number=row.number))
        sequences = [sequence for page in pages for sequence, _ in page.records]
        assert sequences == [sequence for sequence in own if sequence > position]
        assert pages[-1].through_sequence == last


async def test_an_evaluation_without_events_is_followed_from_the_logs_end(journal, tmp_path):
    """Until its samples are counted it has none: the page is empty and examines everything."""
    await append(journal, 5)
    with owner_locks(tmp_path) as locks:
        claimed = await journal.submit(
            lambda t: claims.claim(t, locks, request(), fingerprint="f", contents=None, worker_id="w")
        )
        (page,) = await pages_of(journal, only=EventFilter(number=claimed.row.number))
    assert page.records == []
    assert page.through_sequence == 5


async def test_an_evaluation_that_is_removed_ends_its_stream(journal):
    """Its number is never given to another."""
    with pytest.raises(NotFound):
        await pages_of(journal, only=EventFilter(number=1))


def work_of_reading(connection, number):
    """Steps of SQLite's machine, in hundreds, for the first page of an evaluation from the beginning."""
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    connection.set_progress_handler(count, 100)
    try:
        only = EventFilter(number=number)
        streams._read_page(connection, 0, only, "", lambda page: page, fresh=True, empty_after=None)
    finally:
        connection.set_progress_handler(None, 0)
    return steps


async def test_a_watch_from_the_beginning_does_not_read_what_others_wrote(tmp_path):
    """The log around an evaluation costs its watchers nothing, however long it is."""
    work = {}
    for others in (0, 20_000):
        folder = tmp_path / str(others)
        async with open_journal(folder) as journal:
            row = await evaluated(journal, folder, before=others, after=others, samples=50)
            work[others] = await journal.read_stream(work_of_reading, row.number)
    assert work[20_000] <= work[0] + 1


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_one_read_examines_a_bounded_stretch(journal, monkeypatch, extra):
    """A filter that lets little through does not keep its thread: others read before it resumes."""
    monkeypatch.setattr(streams, "EXAMINED_EVENTS", 100)
    await append(journal, 100 + extra, run_id="other")
    await append(journal, 1, run_id="mine")
    pages = await pages_of(journal, only=EventFilter(run_id="mine"))
    assert [sequence for page in pages for sequence, _ in page.records] == [101 + extra]
    # The first page comes at once, be it empty.
    assert pages[0].through_sequence == min(100, 101 + extra)
    assert len(pages) == (1 if extra == -1 else 2)


async def test_streams_wait_for_threads_of_their_own(journal):
    """However many streams there are, they have these threads, pages are packed there, and calls wait for none."""
    await append(journal, 1)
    gate, packing, names = threading.Event(), threading.Semaphore(0), []

    def pack(page):
        names.append(threading.current_thread().name)
        packing.release()
        assert gate.wait(30)
        return page

    async def ended(look):
        return True

    async def first():
        stream = follow(journal, after_sequence=0, log_id="", only=EventFilter(), ended=ended, pack=pack)
        return [page async for page in stream]

    reading = [asyncio.create_task(first()) for _ in range(journals.STREAM_READERS + 8)]
    try:
        for _ in range(journals.STREAM_READERS):
            assert await asyncio.to_thread(packing.acquire, timeout=30)
        # Every thread that streams have is at work now, and a call is answered.
        assert (await journal.read(head)).sequence == 1
        assert len(names) == journals.STREAM_READERS
    finally:
        gate.set()
    assert [len(pages) for pages in await asyncio.gather(*reading)] == [1] * len(reading)
    assert {name.rpartition("_")[0] for name in names} == {"stream-reader"}


@rows(
    ("waited", "rest"),
    [
        (0.0, streams.FLUSH_SECONDS),
        (streams.FLUSH_SECONDS / streams.REST_TIMES, streams.FLUSH_SECONDS),
        (2 * streams.FLUSH_SECONDS / streams.REST_TIMES, 2 * streams.FLUSH_SECONDS),
        (streams.LONGEST_REST_SECONDS / streams.REST_TIMES, streams.LONGEST_REST_SECONDS),
        (60.0, streams.LONGEST_REST_SECONDS),
    ],
)
def test_streams_that_wait_for_each_other_rest_for_longer(waited, rest):
    """One alone gathers events for a moment; many, for which a page takes longer, gather more, within a bound."""
    assert streams.rest_seconds(waited) == rest
