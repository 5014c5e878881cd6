"""What is removed from the journal: old events, evaluations that ended or were interrupted long ago, unused plans.

Age is measured by the machine's clock, as far as it can be trusted; see `journal.lived`.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools

import structlog

from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.history import checkpoint_results, lifecycle, resumptions
from crucible_worker.history.evaluation_files import remove_forgotten
from crucible_worker.history.removal import CHUNK, hide, remove_chunk
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.experiments import remove_unused_experiment
from crucible_worker.journal.plans import remove_unused
from crucible_worker.journal.queries import find_by_number, head
from crucible_worker.journal.store import Owners
from crucible_worker.journal.uptime import UptimeClock, trusted_clock
from crucible_worker.util.error_reporter import logged

__all__ = ["NOTICE_SECONDS", "TRIM_SECONDS", "Retention", "keep_trimmed", "trim"]

TRIM_SECONDS = 60.0
"""Seconds between two removals by a worker."""

NOTICE_SECONDS = 86_400.0
"""Seconds before the cancel of an interrupted evaluation at which a log says so."""

_log = structlog.get_logger(__name__)

_ENDED = (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long records are retained; 0 is forever."""

    max_events: int
    """Number of events retained; those of unfinished evaluations always are."""
    evaluation_seconds: float
    """Ended evaluations with their samples: seconds since they ended. Experiments: since they were logged to."""
    interrupted_seconds: float
    """Interrupted evaluations: seconds since they were interrupted; then they are cancelled."""
    plan_seconds: float
    """Plans of a run without evaluations: seconds since they were used."""
    run_seconds: float = 0.0
    """What evaluations of a run measured: seconds since they ended, if the evaluation is no longer retained."""
    grace_seconds: float = 0.0
    """Lived time for which a record must have been too old before it is removed."""


async def keep_trimmed(journal: Journal, locks: Owners, retention: Retention, life: UptimeClock) -> None:
    """Count the time and remove what is too old, now and every `TRIM_SECONDS`; runs until it is cancelled."""
    while True:
        removed: collections.Counter[str] = collections.Counter()
        try:
            await journal.submit(life.beat)
            while await journal.submit(functools.partial(trim, locks=locks, retention=retention, removed=removed)):
                pass
            if folders := await remove_forgotten(journal):
                removed["folders"] = folders
        except JournalUnavailable as error:
            _log.warning("not_trimmed", reason=error.reason)
        except Exception as error:  # an error must not end the loop
            logged(_log, "trim_failed", error)
        if removed:
            _log.info(
                "removed_by_retention",
                evaluations=removed["evaluations"],
                samples=removed["samples"],
                events=removed["events"],
                plans=removed["plans"],
                checkpoint_results=removed["checkpoint_results"],
                experiments=removed["experiments"],
                interrupted_cancelled=removed["interrupted_cancelled"],
                folders=removed["folders"],
            )
        await asyncio.sleep(TRIM_SECONDS)


def trim(
    transaction: Transaction,
    locks: Owners,
    retention: Retention,
    removed: collections.Counter[str] | None = None,
) -> bool:
    """Remove one chunk of what is too old; True when there is more to remove.

    Args:
        transaction: the transaction.
        locks: this worker's.
        retention: how long records are retained.
        removed: gets the counts of what was removed, after the commit.
    """
    clock = trusted_clock(transaction, retention.grace_seconds)
    now: collections.Counter[str] = collections.Counter()
    more = False
    if retention.interrupted_seconds:
        _cancel_forgotten(transaction, locks, clock, retention.interrupted_seconds, now)
    if remove_chunk(transaction, CHUNK, now):
        more = True
    elif retention.evaluation_seconds:
        before = _ago(clock, retention.evaluation_seconds)
        more |= _remove_evaluations(transaction, before, now)
        unused = remove_unused_experiment(transaction, before)
        now["experiments"] += unused
        more |= unused
    if retention.plan_seconds:
        unused, rows = remove_unused(transaction, _ago(clock, retention.plan_seconds), CHUNK)
        now["plans"] += rows
        more |= unused
    if retention.run_seconds:
        before_ns = _ago(clock, retention.run_seconds)
        results = checkpoint_results.remove_old(transaction, before_ns, CHUNK)
        now["checkpoint_results"] += results
        more |= results == CHUNK
    if retention.max_events:
        more |= _remove_events(transaction, retention.max_events, now)
    if removed is not None:
        transaction.after_commit(lambda: removed.update(+now))
    return more


def _ago(clock_ns: int, seconds: float) -> int:
    return clock_ns - int(seconds * 1e9)


def _cancel_forgotten(
    transaction: Transaction, locks: Owners, clock_ns: int, seconds: float, counts: collections.Counter[str]
) -> None:
    """Cancel what was interrupted so many seconds ago, if a log has said so before."""
    notice = min(NOTICE_SECONDS, seconds)
    rows = transaction.execute(
        """SELECT evaluations.number FROM evaluations JOIN resumptions ON resumptions.number = evaluations.number
           WHERE state = ? AND interrupted_ns < ? AND warned_ns > 0 AND warned_ns <= ?""",
        (EvaluationState.INTERRUPTED, _ago(clock_ns, seconds), _ago(clock_ns, notice)),
    ).fetchall()
    for row in resumptions.warn(transaction, _ago(clock_ns, seconds - notice), clock_ns):
        transaction.after_commit(functools.partial(_tell, row.evaluation_id, notice))
    problem = Problem(reason=Reason.RETENTION, message="interrupted for longer than interrupted_retention")
    for (number,) in rows:
        if locks.is_free(number, transaction):
            row = find_by_number(transaction, number)
            lifecycle.end(transaction, locks, row, EvaluationState.CANCELLED, problem, row.active_ns)
            counts["interrupted_cancelled"] += 1


def _tell(evaluation_id: str, notice: float) -> None:
    _log.warning(
        "interrupted_will_be_cancelled",
        evaluation_id=evaluation_id,
        hours=round(notice / 3600, 1),
        cure=f"crucible-worker resume {evaluation_id}",
    )


def _remove_evaluations(transaction: Transaction, before_ns: int, counts: collections.Counter[str]) -> bool:
    row = transaction.execute(
        f"""SELECT number FROM evaluations WHERE state IN ({", ".join("?" * len(_ENDED))}) AND ended_ns < ?
            AND number NOT IN (SELECT number FROM removals) LIMIT 1""",
        (*_ENDED, before_ns),
    ).fetchone()
    if row is None:
        return False
    # A worker of an earlier release may have ended it, which wrote none.
    checkpoint_results.keep(transaction, *row)
    hide(transaction, *row)
    return remove_chunk(transaction, CHUNK, counts)


def _remove_events(transaction: Transaction, max_events: int, counts: collections.Counter[str]) -> bool:
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
        counts["events"] += transaction.execute(f"DELETE FROM {table} WHERE sequence < ?", (oldest,)).rowcount
    transaction.execute("UPDATE head SET oldest = ?", (oldest,))
    return oldest < oldest_wanted
