"""The writer: batches in order, functions undone alone, and what is told to whom after a commit or a failure."""

import asyncio
import sqlite3
import threading

import pytest

from crucible_bridge.errors import InvalidField, Unavailable
from crucible_worker.journal import queries, sqlite
from crucible_worker.journal.copies import read_marks
from crucible_worker.journal.schema import JOURNAL_FILE, connect
from crucible_worker.journal.sqlite import JournalMark
from crucible_worker.journal.store import ROWS_TOGETHER
from crucible_worker.journal.unavailable import JournalUnavailable
from crucible_worker.journal.writer import MAX_BATCH
from tests.unit.journal.journals import IN_A_FILE, append, claim, event, open_journal, owner_locks

ADD = "INSERT OR REPLACE INTO probe VALUES (1, ?)"


class Gate:
    """Holds the writer's thread, so that what is submitted meanwhile gathers in one batch."""

    def __init__(self, journal):
        self._entered, self._open = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold(transaction):
            loop.call_soon_threadsafe(self._entered.set)
            self._open.wait(10)

        self._held = journal.submit(hold)

    async def __aenter__(self):
        await self._entered.wait()

    async def __aexit__(self, *exc_info):
        self._open.set()
        await self._held


def _failing(journal):
    """What fails as the journal's database does."""

    def fail(transaction):
        raise journal.errors[0]("database or disk is full")

    return fail


async def _all(futures):
    return await asyncio.gather(*futures, return_exceptions=True)


async def test_submissions_are_applied_in_order_and_answered_with_their_results(journal):
    """What was submitted first is applied first, over the bounds of batches, and each gets what it returned."""
    applied = []
    futures = [
        journal.submit(lambda transaction, index=index: applied.append(index) or index)
        for index in range(2 * MAX_BATCH + 3)
    ]
    assert await asyncio.gather(*futures) == list(range(2 * MAX_BATCH + 3)) == applied


@IN_A_FILE
@pytest.mark.parametrize(("size", "together"), [(MAX_BATCH - 1, 2), (MAX_BATCH, 1), (MAX_BATCH + 1, 1), (0, 3)])
async def test_a_transaction_is_bounded_by_the_size_of_what_it_writes(journal, monkeypatch, size, together):
    """Other workers' writers wait for no more than a batch: what is large enough is written alone."""
    batches = []
    write = journal._writer._write
    monkeypatch.setattr(journal._writer, "_write", lambda batch: batches.append(len(batch)) or write(batch))
    async with Gate(journal):
        futures = [journal.submit(lambda transaction: None, size) for _ in range(3)]
    await asyncio.gather(*futures)
    assert batches[:2] == [1, together]  # the gate was first


async def test_sequences_are_gap_free_over_batches(journal):
    """Events get the next sequences, in order of submission, from 1; the head says the last."""
    for _ in range(3):
        async with Gate(journal):
            futures = [journal.submit(lambda transaction: transaction.append(0, [event()] * 2)) for _ in range(5)]
        await asyncio.gather(*futures)
    rows, _ = await journal.read(queries.read_events, after=0, through=1000, limit=1000)
    assert [sequence for sequence, _ in rows] == list(range(1, 31))
    assert (await journal.read(queries.head)).sequence == 30


@IN_A_FILE
@pytest.mark.parametrize("count", [0, 1, 2, 3, ROWS_TOGETHER[0] - 1, ROWS_TOGETHER[0], 2 * ROWS_TOGETHER[0] + 7])
async def test_rows_are_inserted_whole_and_in_order(journal, count):
    """Every row is there once, however many there are, also where the rows are joined with a table."""
    rows = [(position, f"d{position}") for position in range(count)]

    def write(transaction):
        transaction.execute("CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        transaction.execute("CREATE TABLE places (position INTEGER PRIMARY KEY, number INTEGER NOT NULL)")
        transaction.insert("INSERT INTO texts (text) VALUES", [(text,) for _, text in rows])
        transaction.insert(
            "INSERT INTO places SELECT column1, number FROM (VALUES) JOIN texts ON text = column2", rows[::-1]
        )

    await journal.submit(write)
    sql = "SELECT position, text, number FROM places JOIN texts USING (number) ORDER BY position"
    found = await journal.read(lambda connection: connection.execute(sql).fetchall())
    assert found == [(position, text, position + 1) for position, text in rows]


async def test_failing_function_undoes_itself_alone(journal):
    """Rows, events and after_commit of a function that raised are gone; its neighbours of the batch stand, gap-free."""
    told = []

    def good(transaction):
        transaction.after_commit(lambda: told.append("good"))
        transaction.if_undone(lambda: told.append("good undone"))
        return transaction.append(0, [event()])

    def bad(transaction):
        transaction.execute(ADD, (b"bad",))
        transaction.append(0, [event(), event()])
        transaction.after_commit(lambda: told.append("bad"))
        transaction.if_undone(lambda: told.append("bad undone"))
        raise InvalidField("x", "is wrong")

    async with Gate(journal):
        futures = [journal.submit(function) for function in (good, bad, good)]
    first, error, last = await _all(futures)

    assert (first, last) == (1, 2)
    assert isinstance(error, InvalidField)
    assert told == ["bad undone", "good", "good"]
    assert (await journal.read(queries.head)).sequence == 2
    assert await journal.read(lambda c: c.execute("SELECT COUNT(*) FROM probe").fetchone()) == (0,)
    assert journal.writable


async def test_any_error_of_a_function_is_its_submitters(journal):
    """An error that is no BridgeError reaches who submitted it, and the writer goes on."""
    error, count = await _all(
        [journal.submit(lambda transaction: 1 / 0), journal.submit(lambda transaction: transaction.sequence)]
    )
    assert isinstance(error, ZeroDivisionError)
    assert count == 0


@IN_A_FILE
async def test_after_commit_comes_after_the_commit_and_before_the_answer(journal, tmp_path):
    """When after_commit runs, another connection sees what was written; the future is not done yet."""
    seen = []

    def function(transaction):
        transaction.append(0, [event()])
        transaction.after_commit(look)

    def look():
        other = sqlite3.connect(tmp_path / JOURNAL_FILE)
        seen.append((other.execute("SELECT sequence FROM head").fetchone()[0], future.done()))
        other.close()

    future = journal.submit(function)
    await future
    assert seen == [(1, False)]


async def test_failure_of_the_database_fails_the_whole_batch(journal):
    """Every function of the batch gets JOURNAL_UNWRITABLE, worth a retry; nothing is kept; then all is well."""
    told, changes = [], []
    journal.on_writable_change = changes.append

    def good(transaction):
        transaction.after_commit(lambda: told.append("committed"))
        transaction.if_undone(lambda: told.append("undone"))
        return transaction.append(0, [event()])

    async with Gate(journal):
        futures = [journal.submit(function) for function in (good, _failing(journal), good)]
    errors = await _all(futures)

    reasons = [(error.reason, error.retryable) for error in errors if isinstance(error, Unavailable)]
    assert reasons == [("JOURNAL_UNWRITABLE", True)] * 3
    assert told == ["undone"]
    assert (journal.writable, changes) == (False, [False])
    assert (await journal.read(queries.head)).sequence == 0

    assert await journal.submit(good) == 1
    assert (journal.writable, changes) == (True, [False, True])


async def test_unwritable_journal_recovers_by_itself(journal, monkeypatch):
    """Nobody writes: the journal finds out by itself that it can be written again, and says so."""
    monkeypatch.setattr("crucible_worker.journal.journal.PROBE_SECONDS", 0.01)
    recovered = asyncio.Event()
    journal.on_writable_change = lambda writable: recovered.set() if writable else None
    await _all([journal.submit(_failing(journal))])
    assert not journal.writable
    async with asyncio.timeout(5):
        await recovered.wait()


async def test_encoding_that_fails_undoes_its_function_alone(journal):
    """An event that cannot be encoded is its function's error."""
    (error,) = await _all([journal.submit(lambda t: t.append(0, [event(measurements={"x": "no number"})]))])
    assert isinstance(error, TypeError)
    await append(journal, 1)
    assert (await journal.read(queries.head)).sequence == 1


@IN_A_FILE
async def test_owner_lock_is_given_back_where_the_claim_was_not_committed(journal, tmp_path):
    """A claim whose batch failed owns nothing: the same id can be claimed at once, here and elsewhere."""
    with owner_locks(tmp_path) as mine, owner_locks(tmp_path) as others:
        for _ in range(2):
            async with Gate(journal):
                claims = asyncio.create_task(claim(journal, mine))
                await asyncio.sleep(0)
                failing = journal.submit(_failing(journal))
            errors = await _all([claims, failing])
            assert all(isinstance(error, Unavailable) for error in errors)
        claimed = await claim(journal, others)
        assert (claimed.owned, claimed.existed, claimed.row.number) == (True, False, 1)
        assert mine.acquire(2)


async def test_close_writes_what_was_submitted(tmp_path):
    """What was submitted before the end is written; what comes after is refused as draining."""
    async with open_journal(tmp_path) as journal:
        future = journal.submit(lambda transaction: transaction.append(0, [event()]))
        await journal.aclose()
        assert await future == 1
        (error,) = await _all([journal.submit(lambda transaction: None)])
        assert isinstance(error, Unavailable)
        assert error.reason == "DRAINING"


async def test_writers_of_two_journals_on_one_file_share_the_sequence(tmp_path):
    """Two workers that write at once: every sequence once, no gap."""
    async with open_journal(tmp_path) as one, open_journal(tmp_path) as other:
        futures = [
            journal.submit(lambda transaction: transaction.append(0, [event()]))
            for _ in range(200)
            for journal in (one, other)
        ]
        sequences = await asyncio.gather(*futures)
        assert sorted(sequences) == list(range(1, 401))
        assert one.log_id == other.log_id


async def test_journal_that_was_moved_away_is_unwritable_until_it_is_back(tmp_path):
    """What is written to a file that nobody finds any more would be lost: it is refused."""
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    async with open_journal(state) as journal:
        state.rename(elsewhere)
        with pytest.raises(JournalUnavailable, match="moved, removed or replaced"):
            await journal.submit(lambda transaction: transaction.append(0, [event()]))
        assert not journal.writable

        elsewhere.rename(state)

        assert await journal.submit(lambda transaction: transaction.append(0, [event()])) == 1
        assert journal.writable


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_nothing_is_written_beside_a_journal_that_was_replaced(tmp_path, ending):
    """Workers that start later use the new file, and would not find what this one writes to the old one."""
    async with open_journal(tmp_path) as journal:
        assert await journal.submit(lambda transaction: transaction.append(0, [event()])) == 1
        (tmp_path / f"{JOURNAL_FILE}{ending}").unlink()
        with pytest.raises(JournalUnavailable, match="restart this worker"):
            await journal.submit(lambda transaction: transaction.append(0, [event()]))


@IN_A_FILE
async def test_a_bug_of_the_writer_fails_its_batch_alone(journal, monkeypatch):
    """The thread that writes lives on: what is submitted meanwhile is refused, and what comes later is written."""

    def broken(self, source, log):
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(JournalMark, "check", broken)
        with pytest.raises(JournalUnavailable, match="a bug"):
            await append(journal, 1)
    await append(journal, 1)
    assert (await journal.read(queries.head)).sequence == 1


@IN_A_FILE
async def test_the_mark_follows_every_commit(journal, tmp_path):
    """It says up to which sequence events were committed, and never more than that."""
    for count in (1, 5, 1):
        await append(journal, count)
        (mark,) = read_marks(tmp_path).values()
        log = await journal.read(queries.head)
        assert (mark.log_id, mark.sequence) == (log.log_id, log.sequence)

    def fails(transaction):
        transaction.append(0, [event()] * 9)
        raise KeyError("undone")

    with pytest.raises(KeyError):
        await journal.submit(fails)
    (mark,) = read_marks(tmp_path).values()
    assert mark.sequence == 7


@IN_A_FILE
async def test_a_journal_that_was_opened_for_reading_only_is_opened_again(tmp_path, monkeypatch, database):
    """SQLite opens a file so that cannot be opened for writing just then: the first batch fails, not those after it."""
    modes = iter([True])
    monkeypatch.setattr(
        sqlite, "connect", lambda path, *, read_only=False: connect(path, read_only=read_only or next(modes, False))
    )
    monkeypatch.setattr(sqlite.SqliteStore, "connect", lambda store: connect(store._path, read_only=True))
    async with open_journal(tmp_path) as journal:
        with pytest.raises(JournalUnavailable, match="readonly"):
            await append(journal, 1)
        await append(journal, 1)
        assert journal.last_sequence() == 1
