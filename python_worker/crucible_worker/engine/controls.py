"""What callers change of an evaluation while it runs: whether it is paused, and how many samples are at work at once.

Each change is one transaction, with its event. The worker that owns the evaluation reads the changes of other workers
at the journal's news; see `Admission.apply_requests`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, find_by_number
from crucible_worker.journal.records import request_from_record

__all__ = ["Control", "control_of", "controls_at_work", "set_concurrency", "set_paused"]


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """What callers have set."""

    change: int = 0
    """Grows with every change; 0 if there was none."""
    paused: bool = False
    """Whether no sample may begin."""
    concurrency: int | None = None
    """How many samples may be at work at once; None if the request says it."""

    @classmethod
    def of(cls, row: EvaluationRow) -> Control:
        """What a row says."""
        return cls(row.change, row.paused, row.concurrency)


def control_of(source: Reads, number: int) -> Control:
    """What callers have set for an evaluation; also for workers that run a part of it."""
    sql = "SELECT change, paused, concurrency FROM evaluation_controls WHERE number = ?"
    found = source.execute(sql, (number,)).fetchone()
    return Control() if found is None else Control(found[0], bool(found[1]), found[2])


def controls_at_work(source: Reads) -> Mapping[int, Control]:
    """Of the evaluations that are queued or running, those for which callers have set something, by number."""
    rows = source.execute(
        """SELECT number, change, paused, concurrency FROM evaluation_controls
           WHERE number IN (SELECT number FROM evaluations WHERE state IN ('queued', 'running'))"""
    )
    return {number: Control(change, bool(paused), concurrency) for number, change, paused, concurrency in rows}


def set_paused(transaction: Transaction, number: int, paused: bool) -> EvaluationRow:
    """Pause an evaluation, or end its pause; returns its row.

    Raises:
        NotFound: it was removed.
        FailedPrecondition: it has ended (EVALUATION_ENDED).
    """
    row = _not_ended(transaction, number)
    if row.paused == paused:
        return row
    _write(transaction, dataclasses.replace(row, paused=paused))
    kind = EventKind.EVALUATION_PAUSED if paused else EventKind.EVALUATION_RESUMED
    lifecycle.append(transaction, number, (run_events.paused(row, kind),))
    return find_by_number(transaction, number)


def set_concurrency(transaction: Transaction, number: int, concurrency: int) -> EvaluationRow:
    """Set how many samples may be at work at once; returns the evaluation's row.

    Raises:
        NotFound: it was removed.
        FailedPrecondition: it has ended (EVALUATION_ENDED).
    """
    row = _not_ended(transaction, number)
    if row.concurrency == concurrency:
        return row
    previous = row.concurrency or request_from_record(row.request).limits.concurrency
    _write(transaction, dataclasses.replace(row, concurrency=concurrency))
    if previous != concurrency:
        lifecycle.append(transaction, number, (run_events.concurrency(row, concurrency, previous),))
    return find_by_number(transaction, number)


def _not_ended(transaction: Transaction, number: int) -> EvaluationRow:
    row = find_by_number(transaction, number)
    if row.state.terminal:
        raise FailedPrecondition(
            f"is {row.evaluation_id!r}, which has ended: it is {row.state.value}",
            reason=Reason.EVALUATION_ENDED,
            field="evaluation_id",
        )
    return row


def _write(transaction: Transaction, row: EvaluationRow) -> None:
    # START is the first event of an evaluation. It is written now if the data set has not been read yet.
    lifecycle.open_log(transaction, row.number)
    transaction.execute(
        "INSERT OR REPLACE INTO evaluation_controls VALUES (?, ?, ?, ?)",
        (row.number, row.change + 1, int(row.paused), row.concurrency),
    )
