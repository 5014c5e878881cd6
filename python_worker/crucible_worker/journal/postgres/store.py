"""Where a PostgreSQL journal is, and how it is created: by numbered SQL files, each applied once and by one worker."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
import structlog
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal.postgres.connections import (
    LEASE,
    LOCK_WAIT,
    PATIENCE_SECONDS,
    RESTART_LEASE,
    SCHEMA_NAME,
    SETTINGS,
    PostgresReader,
    SqlTranslator,
    WriterStatements,
    connect,
    is_lost,
    parameters,
)
from crucible_worker.journal.queries import Head, JournalDamaged, Reads, head
from crucible_worker.journal.store import CommitNotifier, Submit, Transaction, without_password
from crucible_worker.journal.unavailable import OwnershipLost
from crucible_worker.util.files import make_private_folder
from crucible_worker.util.tasks import Background

__all__ = ["MIGRATE_WAIT", "PostgresStore", "look", "newest_version", "prepare", "refuse_unfit", "refuse_unreadable"]


# The session of a worker in a PostgreSQL journal: what it owns, it owns as long as its session lives.
#
# A session is a row with a lease, and an advisory lock of the writer's connection. It lives until its lease is over by
# the server's clock, or until its connection is gone, which shows at once that a worker was killed. Whoever relies on
# its death removes the row, under the lock of the log's head. Every transaction of a worker begins with a statement
# that finds its row there and renews the lease. So a worker that was stopped, and wakes up, writes nothing for what it
# owned: the number of its session is the token, and it gets another one.
#
# A server that has just been started knows no connections: then every session lives until its worker has had the time
# to come back, which counts from the server's start and so contains its recovery.

_LOCKED: LiteralString = """EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND objid = sessions.session::oid)"""
LIVES: LiteralString = f"""CASE WHEN server_started = pg_postmaster_start_time()
                 THEN expires > clock_timestamp() AND {_LOCKED}
                 ELSE pg_postmaster_start_time() > clock_timestamp() - interval '{RESTART_LEASE}' END"""
"""Whether the session of a row lives."""
_LOCK_CLASS = 0x43425247
"""The first number of the sessions' advisory locks."""


class WorkerSession:
    """The session of one worker; used by the writer's thread, but for `token`."""

    def __init__(self, worker: str) -> None:
        """For a worker, named for people."""
        self._worker = worker
        self.token = 0
        """The number of the present session; 0 before the first transaction."""
        self._locked_by: psycopg.Connection[Any] | None = None

    def renew(self, connection: psycopg.Connection[Any]) -> str:
        """Renew the lease, or begin another session, inside a transaction; returns the transaction's id."""
        row = connection.execute(
            f"""UPDATE sessions SET expires = clock_timestamp() + interval '{LEASE}',
                server_started = pg_postmaster_start_time() WHERE session = %s
                RETURNING pg_current_xact_id()::text""",
            (self.token,),
        ).fetchone()
        if row is None:
            self.token, transaction = connection.execute(
                f"""INSERT INTO sessions (worker, expires, server_started) VALUES (
                    %s, clock_timestamp() + interval '{LEASE}', pg_postmaster_start_time())
                    RETURNING session, pg_current_xact_id()::text""",
                (self._worker,),
            ).fetchone() or (0, "")
            self._locked_by = None
        else:
            (transaction,) = row
        if self._locked_by is not connection:
            # Of the connection, not of the transaction. An older connection of this worker may have it still.
            connection.execute("SELECT pg_advisory_unlock_all()")
            connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_LOCK_CLASS, self.token))
            self._locked_by = connection
        return transaction

    def end(self, connection: psycopg.Connection[Any]) -> None:
        """Remove the session, and with it what it owns."""
        connection.execute("DELETE FROM sessions WHERE session = %s", (self.token,))


# How workers detect that a PostgreSQL journal is a restored backup: then its log gets a new identity.
#
# The journal records which server it is in, that server's timeline and the database. A backup that is restored gets
# another database, another server, or, after a recovery to a point in time, another timeline. So does a standby that is
# promoted. After a false alarm, subscribers get OTHER_LOG and read the log from its beginning; no evaluation changes.

_HERE = """SELECT system_identifier, timeline_id::bigint, pg_database.oid::bigint
           FROM pg_control_system(), pg_control_checkpoint(), pg_database WHERE datname = current_database()"""


def recognize(connection: psycopg.Connection[Any], through: int) -> None:
    """Give the log a new identity if the journal is a copy or was set back; remember where it is.

    Args:
        connection: to the journal, outside of a transaction.
        through: the last sequence that this worker has committed or read; 0 if none.
    """
    here = connection.execute(_HERE).fetchone()
    if _is_recognized(connection, here, through):
        return
    with connection.transaction():
        connection.execute("SELECT 1 FROM head FOR UPDATE")
        if _is_recognized(connection, here, through):
            return
        known = connection.execute("SELECT 1 FROM journal_place").fetchone()
        if known is not None:
            log_id = uuid.uuid4().hex
            connection.execute("UPDATE head SET log_id = %s", (log_id,))
            _log.warning("journal_is_a_copy", reason="it was restored: its log has a new identity", log_id=log_id)
        connection.execute("DELETE FROM journal_place")
        connection.execute("INSERT INTO journal_place VALUES (1, %s, %s, %s)", here)


def _is_recognized(connection: psycopg.Connection[Any], here: Any, through: int) -> bool:
    place = connection.execute("SELECT server, timeline, database FROM journal_place").fetchone()
    (sequence,) = connection.execute("SELECT sequence FROM head").fetchone() or (0,)
    return place == here and sequence >= through


# The connection of a worker that writes to a PostgreSQL journal.
#
# Every transaction first locks the row of the log's head, until it is committed. So transactions of all workers follow
# each other, sequences have no gaps, and none is visible before a lower one.
#
# When the connection is lost, a batch is applied again on another one, for `PATIENCE_SECONDS`. When it was lost during
# the commit, the server is asked what became of the transaction.

PAUSE_SECONDS = 0.05
"""Seconds between two tries to connect."""
CHANNEL: LiteralString = "crucible_journal"
"""The channel of the news."""

_NOTIFY = f"SELECT pg_notify('{CHANNEL}', log_id || ' ' || sequence || ' ' || oldest) FROM head"


class PostgresWriting:
    """See `crucible_worker.journal.store.Writing`."""

    def __init__(self, url: str, dialect: SqlTranslator, session: WorkerSession) -> None:
        """Connect with the first transaction."""
        self._url, self._dialect, self._session = url, dialect, session
        self._connection: psycopg.Connection[Any] | None = None
        self._statements: WriterStatements | None = None
        self._transaction = ""
        self._through = 0
        self._failing_since: float | None = None
        self._undone = False  # a commit met a lost connection, and the server has not got it
        self._ending = threading.Event()

    @property
    def source(self) -> WriterStatements:
        """Runs the statements of the transaction."""
        assert self._statements is not None, "no transaction has begun"
        return self._statements

    def begin(self) -> Head:
        """Begin a transaction in which no other worker writes; returns the log as committed."""
        connection = self._connection or self._connect()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM head FOR UPDATE")
        self._transaction = self._session.renew(connection)
        self.source.changes = 0
        return head(self.source)

    def commit(self, before: int, sequence: int) -> None:
        """Commit, with the log's last sequences before and after the transaction."""
        connection, source = self._connection, self.source
        assert connection is not None
        if sequence != before:
            source.execute("UPDATE head SET sequence = ?", (sequence,))
        if source.changes:
            connection.execute(_NOTIFY)
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            if not is_lost(error, connection):
                raise
            if not self._was_committed():
                self._undone = True
                raise
        if self._failing_since is not None:
            _log.info("database_back", seconds=round(time.monotonic() - self._failing_since, 1))
        self._failing_since, self._through = None, sequence

    def roll_back(self) -> None:
        """Undo the transaction, if there is one."""
        if self._connection is None:
            return
        try:
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        except psycopg.Error as error:
            if not is_lost(error, self._connection):  # else `recovers` logs it
                _log.warning("rollback_failed", reason=str(error).strip())
        if self._connection.closed:
            self._connection = None

    def recovers(self, error: Exception) -> bool:
        """Whether a batch may be applied again, after a pause: the connection was lost, and not for too long."""
        if isinstance(error, errors.TransactionResolutionUnknown):  # it may stand already
            return False
        undone, self._undone = self._undone, False
        if not isinstance(error, psycopg.Error) or not (undone or is_lost(error, self._connection)):
            return False
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            _log.warning("database_lost", reason=str(error).strip(), at_most_seconds=PATIENCE_SECONDS)
        if time.monotonic() - self._failing_since > PATIENCE_SECONDS:
            return False
        return not self._ending.wait(PAUSE_SECONDS)

    def hurry(self) -> None:
        """Wait for the database no longer: the worker ends."""
        self._ending.set()

    def close(self) -> None:
        """End the session, and close the connection."""
        try:
            if self._connection is not None:
                self._session.end(self._connection)
                self._connection.close()
        except psycopg.Error as error:
            _log.warning("session_not_ended", reason=str(error).strip())

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self._url)
        try:
            # A worker that is stopped in the middle of a transaction keeps the others from writing for so long.
            connection.execute(f"SET idle_in_transaction_session_timeout = '{LEASE}'")
            connection.execute(f"SET lock_timeout = '{LOCK_WAIT}'")
            recognize(connection, self._through)
        except psycopg.Error:
            connection.close()
            raise
        self._connection, self._statements = connection, WriterStatements(connection, self._dialect)
        return connection

    def _was_committed(self) -> bool:
        """What became of the last transaction: asks until the database is back and knows it."""
        lost, self._connection = self._transaction, None
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                connection = self._connection or self._connect()
                (status,) = connection.execute("SELECT pg_xact_status(%s::xid8)", (lost,)).fetchone() or ("",)
                if status != "in progress":
                    return status == "committed"
            except psycopg.OperationalError:
                if self._connection is not None and self._connection.closed:
                    self._connection = None
            if time.monotonic() > until or self._ending.wait(PAUSE_SECONDS):
                raise errors.TransactionResolutionUnknown("whether a transaction was committed is unknown")


# Which worker owns what, in a PostgreSQL journal: what its session owns, as said above.

RELEASE_SECONDS = 0.5
"""Seconds between two tries to release what could not be released while the database was away."""


class Leases:
    """What one worker owns of one kind; see `crucible_worker.journal.store.Owners`."""

    def __init__(self, kind: str, session: WorkerSession, submit: Submit, read: Callable[..., Any]) -> None:
        """Own nothing yet.

        Args:
            kind: what is owned.
            session: the worker's.
            submit: applies a function in the next transaction.
            read: applies a function to a connection that reads.
        """
        self._kind, self._session, self._submit, self._read = kind, session, submit, read
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, int] = {}
        self._guard = threading.Lock()
        self._closed = False

    def acquire(self, number: int, transaction: Transaction) -> bool:
        """Become the owner, inside a transaction; False if any worker is, this one included."""
        if not self.is_free(number, transaction):
            return False
        token = self._session.token
        transaction.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)", (self._kind, number, token))
        with self._guard:
            self._held[number] = token
        transaction.if_undone(lambda: self._drop(number))
        return True

    def is_free(self, number: int, transaction: Transaction) -> bool:
        """Whether no worker is the owner; removes the session of an owner that is dead."""
        found = _owner(transaction, self._kind, number)
        if found is None:
            return True
        session, lives = found
        if not lives:
            transaction.execute("DELETE FROM sessions WHERE session = ?", (session,))
            _log.info("session_ended", session=session, reason="its lease is over, or its connection is gone")
        return not lives

    async def take(self, number: int) -> bool:
        """As `acquire`, outside of a transaction."""
        return await self._submit(lambda transaction: self.acquire(number, transaction))

    async def looks_free(self, number: int) -> bool:
        """Whether no worker seems to be the owner."""
        found = await self._read(_owner, self._kind, number)
        return found is None or not found[1]

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse to write for what this worker owns no longer."""
        with self._guard:
            token = self._held.get(number)
        if token != self._session.token:
            raise OwnershipLost()

    async def confirm(self, number: int) -> None:
        """As `check`, outside of a transaction."""
        await self._submit(lambda transaction: self.check(number, transaction))

    def release(self, number: int) -> None:
        """Be no longer the owner, as soon as the database can be told; does nothing if this worker is not."""
        token = self._forget(number)
        if token is not None:
            self._tell(number, token)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the owner from the commit of a transaction on."""
        self._remove(transaction, number, self._session.token)
        transaction.after_commit(lambda: self._drop(number))

    def close(self) -> None:
        """Own nothing any more: the session ends with the writer."""
        self._closed = True

    def _forget(self, number: int) -> int | None:
        with self._guard:
            return self._held.pop(number, None)

    def _drop(self, number: int) -> None:
        self._forget(number)

    def _tell(self, number: int, token: int) -> None:
        if not self._closed:
            told = self._submit(lambda transaction: self._remove(transaction, number, token))
            told.add_done_callback(lambda future: self._told(future, number, token))

    def _told(self, future: asyncio.Future[None], number: int, token: int) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._loop.call_later(RELEASE_SECONDS, self._tell, number, token)

    def _remove(self, transaction: Transaction, number: int, token: int) -> None:
        sql = "DELETE FROM owners WHERE kind = ? AND number = ? AND session = ?"
        transaction.execute(sql, (self._kind, number, token))


def _owner(source: Reads, kind: str, number: int) -> tuple[int, bool] | None:
    """The session that owns something, and whether it lives."""
    sql = f"SELECT session, {LIVES} FROM owners JOIN sessions USING (session) WHERE kind = ? AND number = ?"
    return source.execute(sql, (kind, number)).fetchone()


# News of a PostgreSQL journal: the server notifies every worker of each commit, with the log's last sequence.

RECONNECT_SECONDS = 0.2
"""Seconds between two tries to listen again."""

_log = structlog.get_logger(__name__)


class PostgresStatus:
    """See `crucible_worker.journal.store.JournalStatus`; used in the event loop in which it is made."""

    def __init__(self, url: str, log: Head, background: Background) -> None:
        """Listen from now on; `log` is the log as it was just now."""
        self._url, self._log = url, log
        self._lost, self._lost_at = "", 0.0
        self._heard_again = asyncio.Event()
        self.commits = CommitNotifier()
        self._task = background.keep("journal-news", self._listen)

    def head(self) -> Head:
        """The log, as far as this worker has heard.

        Raises:
            psycopg.OperationalError: nothing was heard for too long.
        """
        if self._lost and self._patience_left() <= 0:
            raise psycopg.OperationalError(self._lost)
        return self._log

    async def returns(self) -> bool:
        """Wait until the database is there, if it is not; False if it is away for too long."""
        if not self._lost:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._patience_left())):
                await self._heard_again.wait()
        return not self._lost

    def _patience_left(self) -> float:
        return self._lost_at + PATIENCE_SECONDS - time.monotonic()

    def committed(self, sequence: int) -> None:
        """This worker has committed."""
        self._hear(Head(self._log.log_id, sequence, self._log.oldest))
        self.commits.publish()

    async def aclose(self) -> None:
        """End the news, and what waits for the database."""
        self._heard_again.set()
        self._task.cancel()
        await asyncio.wait([self._task])
        self.commits.close()

    async def _listen(self) -> None:
        while True:
            try:
                await self._heard()
            except (psycopg.Error, OSError) as error:
                reason = str(error).strip() or type(error).__name__
                if not self._lost:
                    _log.warning("news_lost", reason=reason)
                    self._lost_at = time.monotonic()
                    self._heard_again.clear()
                self._lost = reason
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _heard(self) -> None:
        """Listen as long as the connection lasts."""
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, **parameters(self._url)
        ) as connection:
            await connection.execute(SETTINGS)
            await connection.execute(f"LISTEN {CHANNEL}")
            row = await (await connection.execute("SELECT log_id, sequence, oldest FROM head")).fetchone()
            if row is not None:
                self._hear(Head(*row))
            if self._lost:
                _log.info("news_again", seconds=round(time.monotonic() - self._lost_at, 1))
            self._lost = ""
            self._heard_again.set()
            self.commits.publish()
            async for note in connection.notifies():
                log_id, sequence, oldest = note.payload.split(" ")
                self._hear(Head(log_id, int(sequence), int(oldest)))
                self.commits.publish()

    def _hear(self, log: Head) -> None:
        """Notes may come after what this worker has committed meanwhile: the log never gets shorter by them."""
        if log.log_id != self._log.log_id or log.sequence >= self._log.sequence:
            self._log = log


MIGRATE_WAIT: LiteralString = "60 s"
"""How long a worker waits for another one that creates or upgrades the journal."""
BEAT_SECONDS = 1.0
"""Seconds between two transactions of a worker that has nothing to write: they renew its lease."""

_MIGRATION_LOCK = 0x4A4F55524E414C
_OLDEST_SERVER = 130000
_NAME = re.compile(r"(\d{4})_\w+\.sql")
_UNENCODED = re.compile(r"\w+://[^@/?]*[@/][^?]*@")
"""A second @, or one after the host."""
_UNKNOWN_PARAMETER = re.compile(r'invalid URI query parameter: "(\w+)"')


class PostgresStore:
    """See `crucible_worker.journal.store.Store`."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, JournalDamaged)
    beat_seconds: float | None = BEAT_SECONDS

    def __init__(self, url: str, folder: Path, dialect: SqlTranslator, log: Head) -> None:
        """See `prepare`."""
        self._url, self._dialect, self._log = url, dialect, log
        self.folder = folder
        self._session = WorkerSession(f"{socket.gethostname()} {os.getpid()}")

    def connect(self) -> PostgresReader:
        """Another connection that only reads."""
        return PostgresReader(connect(self._url), self._dialect)

    def writing(self) -> PostgresWriting:
        """The connection that writes."""
        return PostgresWriting(self._url, self._dialect, self._session)

    def status(self, background: Background) -> PostgresStatus:
        """What the running event loop asks."""
        return PostgresStatus(self._url, self._log, background)

    def owners(self, kind: str, submit: Submit, read: Callable[..., Any]) -> Leases:
        """Owners of one kind of things."""
        return Leases(kind, self._session, submit, read)

    def leads(self, transaction: Transaction) -> bool:
        """Whether no older session lives."""
        sql = f"SELECT 1 FROM sessions WHERE session < ? AND {LIVES} LIMIT 1"
        return transaction.execute(sql, (self._session.token,)).fetchone() is None

    def is_lasting(self, error: Exception) -> bool:
        """Whether an error of a reader shows that the journal is damaged."""
        return isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted | JournalDamaged)

    def is_lost(self, error: Exception) -> bool:
        """Whether a reader's connection is of no use after an error."""
        return isinstance(error, psycopg.OperationalError)


def prepare(url: str, state_dir: Path) -> PostgresStore:
    """Create or upgrade the journal of a database, if that is needed; several workers may do so at once.

    Args:
        url: of the database, "postgresql://USER@HOST/DATABASE".
        state_dir: where this machine has a folder of the files that belong to the journal.

    Raises:
        FailedPrecondition: the database cannot be used, or its journal is of a newer version.
    """
    refuse_unreadable(url)
    privilege = ""
    try:
        with connect(url) as connection:
            privilege = _lacking_privilege(connection)
            connection.execute(f"SET lock_timeout = '{MIGRATE_WAIT}'")
            refuse_unfit(connection)
            _migrate(connection)
            recognize(connection, 0)
            dialect = SqlTranslator.of(connection, SCHEMA_NAME)
            reader = PostgresReader(connection, dialect)
            log = head(reader)
        folder = state_dir / f"journal-{log.log_id}"
        make_private_folder(folder)
    except (psycopg.Error, OSError, JournalDamaged) as error:
        cure = privilege if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
        raise FailedPrecondition(
            f"--journal {without_password(url)} cannot be used: {str(error).strip()}{cure}",
            reason=Reason.JOURNAL_UNUSABLE,
        ) from error
    return PostgresStore(url, folder, dialect, log)


def refuse_unreadable(url: str) -> None:
    """Refuse a URL in which nobody can tell where the password ends: libpq would show parts of it as a host.

    Raises:
        FailedPrecondition: it has characters that need to be encoded; the message has nothing of the URL.
    """
    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        readable = False
        if _has_no_password(url) and (unknown := _UNKNOWN_PARAMETER.match(str(error))) is not None:
            raise FailedPrecondition(
                f"--journal has {unknown[1]!r}, which is no parameter of PostgreSQL's URLs, as sslmode is",
                reason=Reason.JOURNAL_UNUSABLE,
            ) from None
    else:
        readable = _UNENCODED.match(url) is None
    if not readable:
        raise FailedPrecondition(
            "--journal is not a URL that can be read: in a user's name or password, write %40 for @, %2F for /, "
            "%3A for :, %3F for ?, %26 for & and %25 for %",
            reason=Reason.JOURNAL_UNUSABLE,
        ) from None


def _has_no_password(url: str) -> bool:
    """Whether no part of a URL's parameters can be that of a password, however it is written."""
    return "@" not in url.partition("?")[2] and "password=" not in url


def _lacking_privilege(connection: psycopg.Connection[Any]) -> str:
    """What the database's owner has to run, if the user may not create the schema; empty if it may."""
    ((allowed,),) = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
    info = connection.info
    return "" if allowed else f'; its owner allows it by GRANT CREATE ON DATABASE "{info.dbname}" TO "{info.user}"'


def refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    """Refuse a database that can have no journal.

    Raises:
        FailedPrecondition: the server is too old, or its text is not UTF-8.
    """
    problem = ""
    if connection.info.server_version < _OLDEST_SERVER:
        problem = f"PostgreSQL {connection.info.server_version // 10000} is too old, 13 or newer is needed"
    elif (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        made = "CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0 makes one with it"
        problem = f"the database's encoding is {encoding}, not UTF8: {made}"
    if problem:
        raise FailedPrecondition(f"--journal cannot be used: {problem}", reason=Reason.JOURNAL_UNUSABLE)


def newest_version() -> int:
    """The version of the journals that this release writes."""
    return max(_migrations())


def _migrate(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA_NAME}.migrations",)).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}")
            connection.execute("CREATE TABLE migrations (version BIGINT PRIMARY KEY, applied_ns BIGINT NOT NULL)")
        (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone() or (0,)
        files = _migrations()
        if version > max(files):
            raise FailedPrecondition(
                f"the journal is of version {version}, this worker writes {max(files)}: use a newer release, or "
                "another --journal",
                reason=Reason.JOURNAL_VERSION,
            )
        for number in sorted(files):
            if number > version:
                _apply(connection, number, files[number])
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))


def _apply(connection: psycopg.Connection[Any], number: int, sql: str) -> None:
    with connection.transaction():
        connection.execute(sql.encode())
        if number == 1:
            connection.execute("INSERT INTO head VALUES (1, %s, %s, 0, 1)", (uuid.uuid4().hex, time.time_ns()))
        connection.execute("INSERT INTO migrations VALUES (%s, %s)", (number, time.time_ns()))


def _migrations() -> dict[int, str]:
    folder = importlib.resources.files("crucible_worker.journal.postgres") / "migrations"
    found: dict[int, str] = {}
    for file in folder.iterdir():
        if (name := _NAME.fullmatch(file.name)) is not None:
            found[int(name[1])] = file.read_text(encoding="utf-8")
    return found


# A look at a database that a worker would use; it changes nothing.


def look(url: str, waiting_text: Callable[[Reads, bool], str]) -> str:
    """What is there, in a few words.

    Args:
        url: of the database.
        waiting_text: names interrupted evaluations that wait for a call, of a journal with or without their table.

    Raises:
        FailedPrecondition: a worker could not use it.
    """
    refuse_unreadable(url)
    try:
        with connect(url) as connection:
            refuse_unfit(connection)
            server = f"PostgreSQL {connection.info.server_version // 10000}"
            if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA_NAME}.migrations",)).fetchone() == (None,):
                if connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone() != (
                    True,
                ):
                    raise FailedPrecondition("the user may not create a schema there", reason=Reason.JOURNAL_UNUSABLE)
                return f"{server}, none yet"
            (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone() or (0,)
            if version > newest_version():
                raise FailedPrecondition(
                    f"the journal is of version {version}, this worker writes {newest_version()}",
                    reason=Reason.JOURNAL_VERSION,
                )
            (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone() or (0,)
            (table,) = connection.execute("SELECT to_regclass('evaluation_graders')").fetchone() or (None,)
            waiting = waiting_text(cast("Reads", connection), table is not None)
    except psycopg.Error as error:
        raise FailedPrecondition(str(error).strip(), reason=Reason.JOURNAL_UNUSABLE) from error
    return f"{server}, evaluations: {count:,}{waiting and f'; {waiting}'}"
