"""The session of a worker in a PostgreSQL journal: what it owns, it owns as long as its session lives.

A session is a row with a lease, and an advisory lock of the writer's connection. It lives until its lease is over by
the server's clock, or until its connection is gone, which shows at once that a worker was killed. Whoever relies on its
death removes the row, under the lock of the log's head. Every transaction of a worker begins with a statement that
finds its row there and renews the lease. So a worker that was stopped, and wakes up, writes nothing for what it owned:
the number of its session is the token, and it gets another one.

A server that has just been started knows no connections: then every session lives until its worker has had the time
to come back, which counts from the server's start and so contains its recovery.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

from crucible_worker.journal.postgres.connections import LEASE, RESTART_LEASE

__all__ = ["LIVES", "Session"]

_LOCKED: LiteralString = """EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND objid = sessions.session::oid)"""
LIVES: LiteralString = f"""CASE WHEN server_started = pg_postmaster_start_time()
                 THEN expires > clock_timestamp() AND {_LOCKED}
                 ELSE pg_postmaster_start_time() > clock_timestamp() - interval '{RESTART_LEASE}' END"""
"""Whether the session of a row lives."""
_LOCK_CLASS = 0x43425247
"""The first number of the sessions' advisory locks."""


class Session:
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
