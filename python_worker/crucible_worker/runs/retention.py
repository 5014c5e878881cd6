"""What the journal forgets: old events, evaluations that ended long ago or that nobody went on with, unused plans."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import structlog

from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.runs import lifecycle
from crucible_worker.runs.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.runs.journal.plans import remove_unused
from crucible_worker.runs.journal.queries import find_by_number, head
from crucible_worker.runs.owners import OwnerLocks

__all__ = ["CHUNK", "TRIM_SECONDS", "Retention", "keep_trimmed", "trim"]

CHUNK = 10_000
"""Rows removed in one transaction: other writers wait for it."""
TRIM_SECONDS = 60.0
"""How often a worker removes what need not be retained."""

_log = structlog.get_logger(__name__)

_ENDED = (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept."""

    max_events: int
    """Events retained, at least those of unfinished evaluations."""
    evaluation_seconds: float
    """Terminal evaluations, record and samples, since they ended."""
    interrupted_seconds: float
    """Interrupted evaluations, since they were interrupted; then they are cancelled."""
    plan_seconds: float
    """Plans whose run has no evaluation left, since they were used."""


async def keep_trimmed(journal: Journal, locks: OwnerLocks, retention: Retention) -> None:
    """Remove what is too old, now and every `TRIM_SECONDS`; runs until it is cancelled."""
    while True:
        try:
            while await journal.submit(lambda transaction: trim(transaction, locks, retention)):
                pass
        except JournalUnavailable as error:
            _log.warning("not_trimmed", reason=error.reason)
        except Exception:  # it must not be the last time that this is tried
            _log.exception("trim_failed")
        await asyncio.sleep(TRIM_SECONDS)


def trim(transaction: Transaction, locks: OwnerLocks, retention: Retention) -> bool:
    """Remove one chunk of what is too old; True when there is more to remove."""
    now = time.time_ns()
    _cancel_forgotten(transaction, locks, now - int(retention.interrupted_seconds * 1e9))
    more_evaluations = _remove_evaluations(transaction, now - int(retention.evaluation_seconds * 1e9))
    more_plans = remove_unused(transaction, now - int(retention.plan_seconds * 1e9), CHUNK)
    more_events = _remove_events(transaction, retention.max_events)
    return more_evaluations or more_plans or more_events


def _cancel_forgotten(transaction: Transaction, locks: OwnerLocks, before_ns: int) -> None:
    rows = transaction.execute(
        "SELECT number FROM evaluations WHERE state = ? AND interrupted_ns < ?",
        (EvaluationState.INTERRUPTED, before_ns),
    ).fetchall()
    problem = Problem(reason="RETENTION", message="interrupted for longer than interrupted_retention")
    for (number,) in rows:
        if locks.is_free(number):
            row = find_by_number(transaction, number)
            lifecycle.end(transaction, locks, row, EvaluationState.CANCELLED, problem, row.active_ns)


def _remove_evaluations(transaction: Transaction, before_ns: int) -> bool:
    row = transaction.execute(
        f"SELECT number FROM evaluations WHERE state IN ({', '.join('?' * len(_ENDED))}) AND ended_ns < ? LIMIT 1",
        (*_ENDED, before_ns),
    ).fetchone()
    if row is None:
        return False
    number = row[0]
    removed = transaction.execute(
        """DELETE FROM samples WHERE number = ? AND (position, evaluator, repeat) IN
           (SELECT position, evaluator, repeat FROM samples WHERE number = ? LIMIT ?)""",
        (number, number, CHUNK),
    ).rowcount
    if removed < CHUNK:
        transaction.execute("DELETE FROM evaluations WHERE number = ?", (number,))
    return True


def _remove_events(transaction: Transaction, max_events: int) -> bool:
    log = head(transaction)
    oldest_wanted = transaction.sequence - max_events + 1
    (unfinished,) = transaction.execute(
        f"""SELECT MIN(first_sequence) FROM evaluations
            WHERE first_sequence > 0 AND state NOT IN ({", ".join("?" * len(_ENDED))})""",
        _ENDED,
    ).fetchone()
    if unfinished is not None:
        oldest_wanted = min(oldest_wanted, unfinished)
    oldest = min(oldest_wanted, log.oldest + CHUNK)
    if oldest <= log.oldest:
        return False
    for table in ("events", "later_events"):
        transaction.execute(f"DELETE FROM {table} WHERE sequence < ?", (oldest,))
    transaction.execute("UPDATE head SET oldest = ?", (oldest,))
    return oldest < oldest_wanted
