"""When an interrupted evaluation may be resumed without a call for it.

    interrupted by    resumed by itself
    a drain           after REST_SECONDS, so that its caller may come first
    a death           the same; after FIRST_BACKOFF_SECONDS, doubled each time, if no sample was done in between
    its user          no (Ctrl-C)
    an outage         as `waits` says

After `MAX_FAILURES` deaths in a row without a sample done, or `MAX_OUTAGES` outages, it waits for a call. So does what
an earlier release has begun: it may have been interrupted for a reason that this release does not know.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from crucible_bridge.types import EvaluationState
from crucible_worker.history.rules import RULES_VERSION, other_rules
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, SnapshotReads, find_by_number
from crucible_worker.util.tasks import Backoff

__all__ = [
    "FIRST_BACKOFF_SECONDS",
    "MAX_BACKOFF_SECONDS",
    "MAX_FAILURES",
    "MAX_OUTAGES",
    "REST_SECONDS",
    "forget",
    "note",
    "resumable",
    "waiting_text",
    "warn",
]

REST_SECONDS = 5.0
"""Seconds from an interruption to a resumption without a call."""
FIRST_BACKOFF_SECONDS = 30.0
"""The same after a death without a sample done."""
MAX_BACKOFF_SECONDS = 3600.0
"""Longest such time, and after an outage."""
MAX_OUTAGES = 24
"""Attempts in a row that an outage of a model interrupts, about a day, after which it waits for a call."""
MAX_FAILURES = 6
"""Deaths in a row without a sample done, after which it waits for a call."""
_SHOWN = 5


def note(transaction: Transaction, row: EvaluationRow, *, died: bool, held: bool) -> None:
    """Record an interruption, as part of its transaction.

    Args:
        transaction: the transaction.
        row: the evaluation, with its samples done.
        died: whether its owner died.
        held: whether its user ended it: then it waits for a call.
    """
    found = transaction.execute("SELECT done, failures FROM resumptions WHERE number = ?", (row.number,)).fetchone()
    before, failures = (0, 0) if found is None else found
    failures = 0 if row.done > before else failures + died
    rest = REST_SECONDS
    if failures:
        rest = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS).after(failures)
    transaction.execute(
        "INSERT OR REPLACE INTO resumptions VALUES (?, ?, ?, ?, ?, 0)",
        (row.number, row.done, failures, int(held), time.time_ns() + int(rest * 1e9)),
    )


def forget(transaction: Transaction, number: int) -> None:
    """Forget why it may not be resumed: a call has resumed the evaluation."""
    transaction.execute("UPDATE resumptions SET failures = 0, held = 0, not_before_ns = 0 WHERE number = ?", (number,))


def warn(transaction: Transaction, interrupted_before_ns: int, now_ns: int) -> Sequence[EvaluationRow]:
    """Record that a log says of interrupted evaluations that they will be cancelled; returns those."""
    rows = transaction.execute(
        """SELECT number FROM evaluations WHERE state = ? AND interrupted_ns < ?
           AND number NOT IN (SELECT number FROM resumptions WHERE warned_ns > 0)""",
        (EvaluationState.INTERRUPTED, interrupted_before_ns),
    ).fetchall()
    for (number,) in rows:
        # One without a row was interrupted by an earlier release: it waits for a call.
        transaction.execute("INSERT OR IGNORE INTO resumptions VALUES (?, 0, 0, 1, 0, 0)", (number,))
        transaction.execute("UPDATE resumptions SET warned_ns = ? WHERE number = ?", (now_ns, number))
    return [find_by_number(transaction, number) for (number,) in rows]


def waiting_text(source: Reads, known: bool) -> str:
    """The interrupted evaluations that no worker resumes without a call, in a few words; empty if there are none.

    Args:
        source: a journal, of an earlier release as well.
        known: whether it has the tables of this release.
    """
    resumed = f"""SELECT resumptions.number FROM resumptions
        JOIN evaluation_rules ON evaluation_rules.number = resumptions.number
        JOIN evaluations AS own ON own.number = resumptions.number
        LEFT JOIN evaluation_waits ON evaluation_waits.number = resumptions.number
        WHERE held = 0 AND failures < {MAX_FAILURES} AND rules = {RULES_VERSION}
        AND COALESCE(outages, 0) < {MAX_OUTAGES}
        AND evaluation_rules.attempt = own.attempt AND own.state = '{EvaluationState.INTERRUPTED}'
        AND own.number NOT IN (SELECT number FROM removals)"""
    numbers = [number for (number,) in source.execute(resumed).fetchall()] if known else []
    resume = {number for number in numbers if not other_rules(find_by_number(source, number))}
    sql = f"SELECT number, evaluation_id FROM evaluations WHERE state = '{EvaluationState.INTERRUPTED}' ORDER BY number"
    rows = source.execute(sql).fetchall()
    found = [evaluation_id for number, evaluation_id in rows if number not in resume]
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return f"interrupted, and not resumed without a call: {', '.join(found[:_SHOWN])}{more} (crucible-worker resume ID)"


def resumable(source: SnapshotReads) -> Sequence[tuple[EvaluationRow, bool]]:
    """The interrupted evaluations that may be resumed now, those first that have waited longest.

    Those that a caller has paused wait for the end of the pause. A time to wait for that is further away than the
    longest there is comes from a clock that was ahead, and does not count.

    Returns:
        Each, and whether an outage of a model has interrupted it.
    """
    now = time.time_ns()
    early = (now + 1, now + int(MAX_BACKOFF_SECONDS * 1e9))
    with source.snapshot():
        found = source.execute(
            """SELECT evaluations.number, COALESCE(outages, 0) FROM evaluations
               JOIN resumptions ON resumptions.number = evaluations.number
               JOIN evaluation_rules ON evaluation_rules.number = evaluations.number
               LEFT JOIN evaluation_waits ON evaluation_waits.number = evaluations.number
               WHERE state = ? AND held = 0 AND failures < ? AND rules = ?
               AND resumptions.not_before_ns NOT BETWEEN ? AND ?
               AND evaluation_rules.attempt = evaluations.attempt
               AND COALESCE(outages, 0) < ? AND COALESCE(evaluation_waits.not_before_ns, 0) NOT BETWEEN ? AND ?
               AND evaluations.number NOT IN (SELECT number FROM removals)
               AND evaluations.number NOT IN (SELECT number FROM evaluation_controls WHERE paused = 1)
               ORDER BY interrupted_ns, evaluations.number""",
            (EvaluationState.INTERRUPTED, MAX_FAILURES, RULES_VERSION, *early, MAX_OUTAGES, *early),
        ).fetchall()
        rows = [(find_by_number(source, number), outages > 0) for number, outages in found]
        return [(row, after_outage) for row, after_outage in rows if not other_rules(row)]
