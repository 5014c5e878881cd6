"""How workers detect that a PostgreSQL journal is a restored backup: then its log gets a new identity.

The journal records which server it is in, that server's timeline and the database. A backup that is restored gets
another database, another server, or, after a recovery to a point in time, another timeline. So does a standby that is
promoted. After a false alarm, subscribers get OTHER_LOG and read the log from its beginning; no evaluation changes.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import structlog

__all__ = ["recognize"]

_HERE = """SELECT system_identifier, timeline_id::bigint, pg_database.oid::bigint
           FROM pg_control_system(), pg_control_checkpoint(), pg_database WHERE datname = current_database()"""
_log = structlog.get_logger(__name__)


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
