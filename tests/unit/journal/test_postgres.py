"""What only a journal in PostgreSQL has: leases, workers that are stopped, a database that goes away, migrations."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs

pytest.importorskip("psycopg", reason=needs.MISSING["psycopg"])

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.types import EvaluationState
from crucible_worker.history import lifecycle
from crucible_worker.history.resumptions import waiting_text
from crucible_worker.journal import queries
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.postgres import connections, store
from crucible_worker.journal.postgres.connections import SqlTranslator
from crucible_worker.journal.postgres.store import PostgresWriting, WorkerSession, without_password
from crucible_worker.journal.schema import SCHEMA
from tests.postgres_server import running_server
from tests.unit.journal.journals import append, claim, event, open_journal

HOLD = Path(__file__).parent / "postgres_owner.py"
pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("postgres_server")]
LONG = 60.0


@pytest.fixture
def url(postgres_server):
    """The URL of an empty database."""
    return postgres_server.new_database()


@contextlib.asynccontextmanager
async def two_workers(url, tmp_path):
    """The journals and owners of two workers."""
    async with open_journal(tmp_path / "one", url) as one, open_journal(tmp_path / "two", url) as two:
        yield (one, one.owners("owners")), (two, two.owners("owners"))


@contextlib.contextmanager
def owner_process(url, tmp_path) -> Iterator[Any]:
    """A process that owns evaluation `e`, writes to it for ever, and says so after each write."""
    child: Any = subprocess.Popen(
        [sys.executable, str(HOLD), url, str(tmp_path / "child")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "owns\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def the_row(journal):
    """The row of evaluation `e`, which is there."""
    row = await journal.read(queries.find, "e")
    assert row is not None
    return row


async def until(check, seconds=LONG):
    """Wait until an asynchronous check holds."""
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.02)


async def test_one_owner_at_a_time(url, tmp_path):
    """What one worker owns the other cannot claim, nor cancel by itself; once it is released it can."""
    async with two_workers(url, tmp_path) as ((one, mine), (two, others)):
        claimed = await claim(one, mine)
        number = claimed.row.number
        assert not await two.submit(lambda t: others.acquire(number, t))
        assert not await one.submit(lambda t: mine.acquire(number, t)), "taken twice"
        assert not await others.looks_free(number)
        row = await two.submit(lambda t: lifecycle.cancel(t, others, number, "because"))
        assert (row.state, (await the_row(one)).cancel_reason) == (EvaluationState.QUEUED, "because")
        mine.release(number)
        await until(lambda: others.looks_free(number))
        assert await others.take(number)
        assert not await mine.looks_free(number)


async def test_end_and_release_are_one_commit(url, tmp_path):
    """Whoever sees that an attempt has ended can claim the evaluation."""
    async with two_workers(url, tmp_path) as ((one, mine), (two, others)):
        row = (await claim(one, mine)).row
        await one.submit(lambda t: lifecycle.interrupt(t, mine, row, 0, "drain"))
        assert (await claim(two, others)).owned


async def test_claims_that_are_undone_own_nothing(url, tmp_path):
    """A claim that was rolled back leaves no owner."""
    async with two_workers(url, tmp_path) as ((one, mine), (_, others)):

        def undone(transaction):
            assert mine.acquire(7, transaction)
            raise KeyError("undone")

        with pytest.raises(KeyError):
            await one.submit(undone)
        assert await others.take(7)


async def test_killed_workers_are_dead_at_once(url, tmp_path):
    """A worker that is killed loses its connection: nobody waits for the end of its lease."""
    async with open_journal(tmp_path, url) as journal:
        owners = journal.owners("owners")
        with owner_process(url, tmp_path) as child:
            row = await the_row(journal)
            assert not await owners.looks_free(row.number)
            child.kill()
            began = time.monotonic()
            await until(lambda: owners.looks_free(row.number))
            print(f"dead after {time.monotonic() - began:.3f} s")
        assert await journal.submit(lambda t: lifecycle.reap(t, owners, row.number))
        assert (await the_row(journal)).state is EvaluationState.INTERRUPTED


async def test_stopped_workers_write_nothing_when_they_wake_up(url, tmp_path):
    """Their lease is over, another worker continues, and what they had begun to write is refused."""
    async with open_journal(tmp_path, url) as journal:
        owners = journal.owners("owners")
        with owner_process(url, tmp_path) as child:
            child.send_signal(signal.SIGSTOP)
            row = await the_row(journal)
            await until(lambda: owners.looks_free(row.number))
            again = await claim(journal, owners)
            assert (again.owned, again.row.attempt) == (True, 2)
            child.send_signal(signal.SIGCONT)
            said = await asyncio.to_thread(child.stdout.read)
        assert said.splitlines()[-1].startswith("refused: ")
        row = await journal.read(queries.find_by_number, row.number)
        assert (row.attempt, row.state) == (2, EvaluationState.QUEUED)
        log = await journal.read(queries.head)
        assert row.last_sequence == log.sequence, "something came after RESUME"


async def test_writers_take_turns_and_leave_no_gap(url, tmp_path):
    """Many transactions of two workers at once: every sequence once, and the log is read in this order."""
    async with two_workers(url, tmp_path) as ((one, _), (two, _)):
        futures = [
            journal.submit(lambda transaction: transaction.append(0, [event()]))
            for _ in range(300)
            for journal in (one, two)
        ]
        assert sorted(await asyncio.gather(*futures)) == list(range(1, 601))
        rows, _ = await two.read(queries.read_events, after=0, through=10**9, limit=10**6)
        assert [sequence for sequence, _ in rows] == list(range(1, 601))
        assert one.log_id == two.log_id


_SETTINGS_OF_A_USER = {
    "default_transaction_isolation": "serializable",
    "statement_timeout": "100ms",
    "lock_timeout": "50ms",
    "idle_session_timeout": "100ms",
    "client_encoding": "LATIN1",
    "search_path": "elsewhere",
}


async def test_settings_of_the_databases_user_change_nothing(url, tmp_path):
    """Writers that wait for each other are not refused, idle connections stay, and every text is kept."""
    with psycopg.connect(url, autocommit=True) as connection:
        database = connection.info.dbname
        for name, value in _SETTINGS_OF_A_USER.items():
            connection.execute(f"ALTER DATABASE {database} SET {name} = '{value}'".encode())
    async with two_workers(url, tmp_path) as ((one, _), (two, _)):
        seen = one.commits.count
        slow = asyncio.create_task(asyncio.to_thread(_hold_the_head, url, 0.3))
        writing = [
            journal.submit(lambda transaction: transaction.append(0, [event(run_id="Ж \u2260 ü")]))
            for _ in range(50)
            for journal in (one, two)
        ]
        await slow
        assert sorted(await asyncio.gather(*writing)) == list(range(1, 101))
        await two.read(lambda reads: reads.execute("SELECT pg_sleep(0.3)").fetchall())
        await until(lambda: _is_at(one, 100))
        assert one.commits.count > seen


def _hold_the_head(url, seconds):
    """Another writer, which is slow."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET lock_timeout = 0")
        connection.execute("SELECT 1 FROM crucible_bridge.head FOR UPDATE")
        connection.execute("SELECT pg_sleep(%s)", (seconds,))


async def test_news_of_other_workers_come_without_asking(url, tmp_path):
    """A commit of one worker wakes those who wait at another one, which then knows the log's end."""
    async with two_workers(url, tmp_path) as ((one, _), (two, _)):
        await append(one, 1)
        await until(lambda: _is_at(two, 1))
        waiting = asyncio.create_task(two.commits.wait(two.commits.count, LONG))
        await asyncio.sleep(0)
        await append(one, 4)
        await waiting
        await until(lambda: _is_at(two, 5))


async def _is_at(journal, sequence):
    try:
        return journal.last_sequence() == sequence
    except Unavailable:  # it has not connected again
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_work_goes_on_after_a_restart_of_the_database(tmp_path, how):
    """Transactions that were under way are there once, sequences have no gap, and owners keep what they own."""
    with running_server() as server:
        url = server.new_database()
        async with two_workers(url, tmp_path) as ((one, mine), (two, others)):
            row = (await claim(one, mine)).row
            owned = FencedJournal(one, mine, row.number)

            def write(number):
                return owned.submit(lambda transaction: lifecycle.append(transaction, number, [event()]))

            numbers, stopping = [], asyncio.create_task(asyncio.sleep(0))
            for turn in range(60):
                numbers.append(write(row.number))
                if turn == 20:
                    await numbers[0]
                    stopping = asyncio.create_task(asyncio.to_thread(_restart, server, how))
                await asyncio.sleep(0.02)
            await stopping
            sequences = await asyncio.gather(*numbers)
            assert sequences == list(range(sequences[0], sequences[0] + 60))
            assert not await others.looks_free(row.number)
            assert (await two.read(queries.head)).sequence == sequences[-1]
            await until(lambda: _is_at(two, sequences[-1]))
            assert one.writable


async def test_a_worker_that_comes_back_late_after_a_restart_keeps_what_it_owns(tmp_path):
    """Busy for longer than a lease since the database restarted: no other takes what it owns, and it writes on."""
    with running_server() as server:
        url = server.new_database()
        async with open_journal(tmp_path, url) as journal:
            owners = journal.owners("owners")
            with owner_process(url, tmp_path) as child:
                row = await the_row(journal)
                child.send_signal(signal.SIGSTOP)
                await asyncio.to_thread(_restart, server, signal.SIGQUIT)
                age = f"SELECT clock_timestamp() - pg_postmaster_start_time() > interval '{connections.LEASE}'"
                await until(lambda: _is_true(journal, age))
                assert not await owners.looks_free(row.number)
                child.send_signal(signal.SIGCONT)
                renewed = "SELECT count(*) = 2 FROM sessions WHERE server_started = pg_postmaster_start_time()"
                await until(lambda: _is_true(journal, renewed))
                assert not await owners.looks_free(row.number)
                assert child.poll() is None


async def _is_true(journal, sql):
    found = await journal.read(lambda reads: reads.execute(sql).fetchone())
    return found is not None and bool(found[0])


async def test_a_transaction_that_stood_still_for_too_long_is_applied_again(url, tmp_path):
    """The server ends it, so that others can write; its submitter gets the result all the same."""
    async with open_journal(tmp_path, url) as journal:
        ended = []

        def stand_still(transaction):
            (pid,) = transaction.execute("SELECT pg_backend_pid()").fetchone()
            if not ended:
                with connections.connect(url) as other:
                    while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
                        time.sleep(0.05)
                ended.append(pid)
            return transaction.append(0, [event()])

        assert await journal.submit(stand_still) == 1
        assert (await journal.read(queries.head)).sequence == 1
        assert len(ended) == 1
        assert journal.writable


async def test_a_commit_that_the_server_has_not_got_is_applied_again(url, tmp_path):
    """The connection is lost in COMMIT, and the next one tells what became of the transaction."""
    async with open_journal(tmp_path, url):
        with connections.connect(url) as other:
            writing = PostgresWriting(url, SqlTranslator.of(other, connections.SCHEMA_NAME), WorkerSession("w"))
            log = writing.begin()
            (pid,) = writing.source.execute("SELECT pg_backend_pid()").fetchone() or (0,)
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
            with pytest.raises(psycopg.OperationalError) as lost:
                writing.commit(log.sequence, log.sequence)
            writing.roll_back()
            assert writing.recovers(lost.value)
            assert writing.begin().sequence == log.sequence
            writing.commit(log.sequence, log.sequence)
            writing.close()


def test_a_transaction_whose_end_is_unknown_is_not_applied_again(url):
    """It may stand already: what waits for it is refused, though the connection was lost a moment ago."""
    writing = PostgresWriting(url, SqlTranslator({}), WorkerSession("w"))
    assert writing.recovers(psycopg.OperationalError("lost"))
    assert not writing.recovers(psycopg.errors.TransactionResolutionUnknown("unknown"))


def _restart(server, how):
    server.stop(how)
    time.sleep(0.5)
    server.start()


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "unnoticed"])
async def test_rows_that_nobody_reads_on_are_closed_though_their_connection_is_lost(url, noticed):
    """A reader that stops half way hears nothing of a connection that is lost: there was nothing to commit."""
    with contextlib.closing(connections.connect(url)) as connection, connections.connect(url) as other:
        reader = connections.PostgresReader(connection, SqlTranslator({}))
        rows = reader.in_turns(f"SELECT generate_series(1, {connections.ROWS_AHEAD * 10})", ())
        assert next(rows) == (1,)
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        if noticed:
            connection.close()
        with contextlib.closing(rows):
            pass
        assert connection.closed or not noticed


async def test_a_database_that_stays_away_makes_the_journal_unwritable(tmp_path, monkeypatch):
    """After some seconds what waits is refused, worth a retry; once the database is back, all is well by itself."""
    monkeypatch.setattr("crucible_worker.journal.postgres.store.PATIENCE_SECONDS", 0.3)
    changes = []
    with running_server() as server:
        async with open_journal(tmp_path, server.new_database()) as journal:
            journal.on_writable_change = changes.append
            await append(journal, 1)
            server.stop()
            with pytest.raises(Unavailable) as refused:
                await append(journal, 1)
            assert (refused.value.reason, refused.value.retryable) == ("JOURNAL_UNWRITABLE", True)
            with pytest.raises(BridgeError):
                await journal.read(queries.head)
            assert changes == [False]
            server.start()
            await until(lambda: _is_writable(journal))
            assert await journal.submit(lambda t: t.append(0, [event()])) == 2
            assert changes == [False, True]


async def _is_writable(journal):
    return journal.writable


async def test_a_restored_database_is_another_log(url, tmp_path, postgres_server):
    """A copy of the database has the evaluations, and an identity of its own; the original keeps its identity."""
    async with open_journal(tmp_path, url) as journal:
        await append(journal, 3)
        log_id = journal.log_id
    name = url.split("/")[3].split("?")[0]
    copy = f"copy_{name}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:

        async def is_unused() -> bool:
            # The server ends a connection somewhat later than its client.
            sql = "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = %s)"
            return connection.execute(sql, (name,)).fetchone() == (True,)

        await until(is_unused)
        connection.execute(f"CREATE DATABASE {copy} TEMPLATE {name}".encode())
    async with open_journal(tmp_path, postgres_server.url(copy)) as journal:
        assert (journal.last_sequence(), journal.log_id == log_id) == (3, False)
    async with open_journal(tmp_path, url) as journal:
        assert (journal.last_sequence(), journal.log_id) == (3, log_id)


async def test_workers_that_start_at_once_create_one_journal(url, tmp_path):
    """One of them applies each migration; all of them have the same log."""
    journals = await asyncio.gather(*(store_of(url, tmp_path / str(index)) for index in range(6)))
    assert len({journal.folder.name for journal in journals}) == 1
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM crucible_bridge.migrations").fetchone() == (
            store.newest_version(),
        )


async def store_of(url, state_dir):
    """The journal of a database, ready to be used."""
    return await asyncio.to_thread(store.prepare, url, state_dir)


async def test_newer_journals_are_refused(url, tmp_path):
    """A worker of an earlier release writes nothing where it does not know the tables."""
    await store_of(url, tmp_path)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO crucible_bridge.migrations VALUES (999, 0)")
    with pytest.raises(FailedPrecondition, match="version 999") as refused:
        await store_of(url, tmp_path)
    assert refused.value.reason == "JOURNAL_VERSION"


async def test_databases_that_cannot_be_used_are_named_without_their_password(tmp_path):
    """The refusal says which database it was, and why."""
    url = f"postgresql://me:secret@/nowhere?host={tmp_path}"
    with pytest.raises(FailedPrecondition, match="postgresql://me@/nowhere") as refused:
        await store_of(url, tmp_path)
    assert "secret" not in str(refused.value)
    assert without_password("postgresql://h/d?user=u&password=secret&x=1") == "postgresql://h/d?user=u&password=...&x=1"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sec@ret@127.0.0.1:1/lab",
        "postgresql://me:sec/ret@127.0.0.1:1/lab",
        "postgresql://me:sec/x?ret@127.0.0.1:1/lab",
        "postgresql://me:%ZZsecret@127.0.0.1:1/lab",
        "postgresql://me:secret@[::1/lab",
        "postgresql://127.0.0.1:1/lab?user=me&password=x&secret",
    ],
)
async def test_urls_that_cannot_be_read_are_refused_without_any_part_of_them(url, tmp_path):
    """Where a password begins and ends is not known then; the refusal says how such characters are written."""
    for use in (lambda: store.prepare(url, tmp_path), lambda: store.look(url, waiting_text)):
        with pytest.raises(FailedPrecondition, match="%40 for @") as refused:
            await asyncio.to_thread(use)
        assert not any(part in str(refused.value) for part in ("sec", "ret", "lab"))


def test_connections_notice_that_the_network_is_gone(tmp_path):
    """What is not acknowledged ends a connection, where the kernel alone would wait for a quarter of an hour."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/lab"
        connecting = pq.PGconn.connect_start(make_conninfo(url, **connections.parameters(url)).encode())
        try:
            with socket.socket(fileno=os.dup(connecting.socket)) as its:
                assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
                assert its.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        finally:
            connecting.finish()


async def test_databases_that_can_only_be_read_are_refused(url, tmp_path):
    """Such as a standby: a worker would start, and write nothing."""
    (await store_of(url, tmp_path)).connect().close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET default_transaction_read_only = on".encode())
    for use in (lambda: store.prepare(url, tmp_path), lambda: store.look(url, waiting_text)):
        with pytest.raises(FailedPrecondition, match="session is read-only"):
            await asyncio.to_thread(use)


async def test_unknown_parameters_of_a_url_are_named(tmp_path):
    """The cure is not an encoded password, if no part of the URL is one."""
    with pytest.raises(FailedPrecondition, match="has 'sslMode', which is no parameter"):
        store.prepare("postgresql://me@127.0.0.1:1/lab?sslMode=require", tmp_path)


async def test_passwords_with_encoded_characters_are_no_trouble(url, tmp_path):
    """Such a URL is used as it is."""
    await store_of(url.replace("postgres@", "postgres:a%40b%2Fc%25@") + "&application_name=a@b", tmp_path)


async def test_users_without_privileges_learn_what_to_grant(url, tmp_path):
    """The user of a worker creates a schema, and the refusal has the command that allows it."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        poor = make_conninfo(url, user="reader")
        try:
            with pytest.raises(FailedPrecondition, match=f'GRANT CREATE ON DATABASE "{name}" TO "reader"'):
                await store_of(poor, tmp_path)
        finally:
            connection.execute("DROP ROLE reader")


async def test_both_databases_have_the_same_tables_and_columns(url, tmp_path):
    """What one has the other has, but for what stands in the place of files."""
    await store_of(url, tmp_path)
    with psycopg.connect(url, autocommit=True) as connection:
        dialect = SqlTranslator.of(connection, "crucible_bridge")
    found = {table: list(columns) for table, (columns, _) in dialect._tables.items()}
    for own in ("sessions", "owners", "journal_place", "migrations"):
        del found[own]
    assert found == _sqlite_tables()


def _sqlite_tables():
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        tables = {
            name: [column[1] for column in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in names.fetchall()
        }
    for own in ("journal_file", "owner_generations"):
        del tables[own]
    return tables


async def test_text_with_nul_is_stored_without_it(url, tmp_path):
    """No text of PostgreSQL has a NUL: a caller who sends one in a reason fails nobody's batch."""
    async with open_journal(tmp_path, url) as journal:
        owners = journal.owners("owners")
        number = (await claim(journal, owners)).row.number
        row = await journal.submit(lambda t: lifecycle.cancel(t, owners, number, "a\0b"))
        assert row.cancel_reason is None
        assert (await journal.read(queries.find_by_number, number)).cancel_reason == "a\u2400b"


async def test_a_commit_of_which_nothing_was_heard_is_asked_for(url, tmp_path):
    """A connection that is lost while a commit is under way leaves no doubt: the server knows what became of it."""
    prepared = await store_of(url, tmp_path)

    def committed(ending):
        writing = prepared.writing()
        writing.begin()
        assert writing._connection is not None
        writing._connection.execute(ending)
        lost = writing._connection
        try:
            return writing._was_committed()
        finally:
            lost.close()
            writing.close()

    assert [await asyncio.to_thread(committed, ending) for ending in ("COMMIT", "ROLLBACK")] == [True, False]
