"""A look at a database that a worker would use; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import psycopg

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal.postgres.connections import SCHEMA_NAME, connect
from crucible_worker.journal.postgres.store import newest_version, refuse_unfit, refuse_unreadable
from crucible_worker.journal.queries import Reads

__all__ = ["look"]


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
            (table,) = connection.execute("SELECT to_regclass('resumptions')").fetchone() or (None,)
            waiting = waiting_text(cast("Reads", connection), table is not None)
    except psycopg.Error as error:
        raise FailedPrecondition(str(error).strip(), reason=Reason.JOURNAL_UNUSABLE) from error
    return f"{server}, evaluations: {count:,}{waiting and f'; {waiting}'}"
