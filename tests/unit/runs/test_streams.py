"""Following the log: pages of bounded size, filters, and where a page says that it has looked."""

import pytest

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import FailedPrecondition, OutOfRange
from crucible_bridge.events import EventKind
from crucible_worker.runs.journal.queries import head
from crucible_worker.runs.streams import PAGE_EVENTS, EventFilter, follow
from tests.unit.runs.journals import append, open_journal


@pytest.fixture
async def journal(tmp_path):
    """An open journal."""
    async with open_journal(tmp_path) as opened:
        yield opened


async def pages_of(journal, after=0, log_id="", only=None):
    """Every page up to the log's present end."""

    async def ended(log, position):
        return position >= log.sequence

    stream = follow(journal, after_sequence=after, log_id=log_id, only=only or EventFilter(), ended=ended)
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
    """By number, kinds, without a kind, and run; all of them together."""
    for run_id in ("x", "y"):
        for kind in (EventKind.METRICS_COMPUTED, EventKind.GRADING_COMPLETE):
            await append(journal, 1, kind=kind, run_id=run_id)

    async def found(**fields):
        (page,) = await pages_of(journal, only=EventFilter(**fields))
        assert page.through_sequence == 4
        return [sequence for sequence, _ in page.records]

    assert await found() == [1, 2, 3, 4]
    assert await found(number=1) == []
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
        ({"number": 1, "new_kinds": True}, []),
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
