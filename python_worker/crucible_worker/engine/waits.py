"""What an evaluation waits for while a model does not answer, and how long no attempt begins after such an outage.

12:00:04  begin: PAUSED with its reason; `waiting_for` is "server lab since 12:00:04 UTC"
12:00:13  end: RESUMED with the same reason
12:10:04  put_off, if the model is still away: INTERRUPTED, and no attempt begins within a minute
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from crucible_bridge.errors import Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle
from crucible_worker.history.resumptions import MAX_BACKOFF_SECONDS
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, find_by_number

__all__ = ["FIRST_REST_SECONDS", "MAX_REST_SECONDS", "begin", "clear", "end", "put_off", "refuse_too_early"]

FIRST_REST_SECONDS = 60.0
"""Seconds after an outage before another attempt begins; doubled with each further outage without an answer between."""
MAX_REST_SECONDS = MAX_BACKOFF_SECONDS
"""Longest such time."""


def begin(transaction: Transaction, number: int, waiting_for: Sequence[str], error: str) -> None:
    """Record that an evaluation waits for models, the last one of which has just been found away, with this error."""
    _write(transaction, number, ", ".join(waiting_for))
    _tell(transaction, number, EventKind.EVALUATION_PAUSED, f"waits for {waiting_for[-1]}: {error}")


def end(transaction: Transaction, number: int, back: str, others: Sequence[str]) -> None:
    """Record that a model answers again; others may still be away."""
    _write(transaction, number, ", ".join(others))
    if not others:
        transaction.execute("UPDATE evaluation_waits SET outages = 0 WHERE number = ?", (number,))
    _tell(transaction, number, EventKind.EVALUATION_RESUMED, f"waited for {back}")


def put_off(transaction: Transaction, number: int) -> None:
    """Let no attempt begin for some time: the outage has lasted too long."""
    row = transaction.execute("SELECT outages FROM evaluation_waits WHERE number = ?", (number,)).fetchone()
    outages = 0 if row is None else row[0]
    rest = min(FIRST_REST_SECONDS * 2**outages, MAX_REST_SECONDS)
    transaction.execute(
        "UPDATE evaluation_waits SET outages = ?, not_before_ns = ? WHERE number = ?",
        (outages + 1, time.time_ns() + int(rest * 1e9), number),
    )


def clear(transaction: Transaction, number: int) -> None:
    """Record that another attempt begins, which waits for nothing yet."""
    transaction.execute("UPDATE evaluation_waits SET waiting_for = '', not_before_ns = 0 WHERE number = ?", (number,))


def refuse_too_early(row: EvaluationRow) -> None:
    """Refuse another attempt shortly after an outage.

    Raises:
        Unavailable: it is too early (MODEL_OUTAGE); it has the seconds until another call may begin one.
    """
    left = (row.not_before_ns - time.time_ns()) / 1e9
    # A clock that was ahead when the outage ended the attempt would put the next one off for as long.
    if 0 < left <= MAX_REST_SECONDS:
        raise Unavailable(
            f"{row.evaluation_id!r} is interrupted, as it waited too long for {row.waiting_for}: no attempt begins for "
            f"{left:.0f} s",
            reason=Reason.MODEL_OUTAGE,
            retry_after=left,
            metadata={"evaluation_id": row.evaluation_id},
        )


def _write(transaction: Transaction, number: int, waiting_for: str) -> None:
    transaction.execute(
        """INSERT INTO evaluation_waits (number, waiting_for, outages, not_before_ns) VALUES (?, ?, 0, 0)
           ON CONFLICT (number) DO UPDATE SET waiting_for = excluded.waiting_for""",
        (number, waiting_for),
    )


def _tell(transaction: Transaction, number: int, kind: EventKind, reason: str) -> None:
    lifecycle.open_log(transaction, number)
    row = find_by_number(transaction, number)
    lifecycle.append(transaction, number, (run_events.paused(row, kind, reason),))
