"""The connection of a worker that writes to a PostgreSQL journal.

Every transaction first locks the row of the log's head, until it is committed. So transactions of all workers follow
each other, sequences have no gaps, and none is visible before a lower one.

When the connection is lost, a batch is applied again on another one, for `PATIENCE_SECONDS`. When it was lost during
the commit, the server is asked what became of the transaction.
"""

from __future__ import annotations

import threading
import time
from typing import Any, LiteralString

import psycopg
import structlog
from psycopg import errors

from crucible_worker.journal.postgres.connections import (
    LEASE,
    LOCK_WAIT,
    PATIENCE_SECONDS,
    Statements,
    connect,
    is_lost,
)
from crucible_worker.journal.postgres.dialect import Dialect
from crucible_worker.journal.postgres.place import recognize
from crucible_worker.journal.postgres.sessions import Session
from crucible_worker.journal.queries import Head, head

__all__ = ["CHANNEL", "PostgresWriting"]

PAUSE_SECONDS = 0.05
"""Seconds between two tries to connect."""
CHANNEL: LiteralString = "crucible_journal"
"""The channel of the news."""

_NOTIFY = f"SELECT pg_notify('{CHANNEL}', log_id || ' ' || sequence || ' ' || oldest) FROM head"
_log = structlog.get_logger(__name__)


class PostgresWriting:
    """See `crucible_worker.journal.store.Writing`."""

    def __init__(self, url: str, dialect: Dialect, session: Session) -> None:
        """Connect with the first transaction."""
        self._url, self._dialect, self._session = url, dialect, session
        self._connection: psycopg.Connection[Any] | None = None
        self._statements: Statements | None = None
        self._transaction = ""
        self._through = 0
        self._failing_since: float | None = None
        self._undone = False  # a commit met a lost connection, and the server has not got it
        self._ending = threading.Event()

    @property
    def source(self) -> Statements:
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
        self._connection, self._statements = connection, Statements(connection, self._dialect)
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
