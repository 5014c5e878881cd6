"""What changes the course of an attempt: changes by callers, waits for a model, and what ends it early.

Callers pause an evaluation, or change how many samples are at work at once. Each change is one transaction, with its
event. The worker that owns the evaluation reads the changes of other workers at the journal's news; see
`Admission.apply_requests`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Mapping, Sequence

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem
from crucible_worker.engine import budgets
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle
from crucible_worker.history.resumptions import MAX_BACKOFF_SECONDS
from crucible_worker.journal import JournalUnavailable, Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, find_by_number
from crucible_worker.journal.records import request_from_record
from crucible_worker.util.error_reporter import logged, shortage, with_id
from crucible_worker.util.tasks import Backoff

__all__ = [
    "FIRST_REST_SECONDS",
    "INTERRUPTS",
    "MAX_REST_SECONDS",
    "Control",
    "Ending",
    "Stopped",
    "begin_wait",
    "clear_waits",
    "control_of",
    "controls_at_work",
    "end_wait",
    "put_off",
    "refuse_too_early",
    "set_concurrency",
    "set_paused",
    "stopped_by",
]

# What an evaluation waits for while a model does not answer, and how long no attempt begins after such an outage.
#
#     12:00:04  begin_wait: PAUSED with its reason; `waiting_for` is "server lab since 12:00:04 UTC"
#     12:00:13  end_wait: RESUMED with the same reason
#     12:10:04  put_off, if the model is still away: INTERRUPTED, and no attempt begins within a minute

FIRST_REST_SECONDS = 60.0
"""Seconds after an outage before another attempt begins; doubled with each further outage without an answer between."""
MAX_REST_SECONDS = MAX_BACKOFF_SECONDS
"""Longest such time."""


def begin_wait(transaction: Transaction, number: int, waiting_for: Sequence[str], error: str) -> None:
    """Record that an evaluation waits for models, the last one of which has just been found away, with this error."""
    _write_wait(transaction, number, ", ".join(waiting_for))
    _tell(transaction, number, EventKind.EVALUATION_PAUSED, f"waits for {waiting_for[-1]}: {error}")


def end_wait(transaction: Transaction, number: int, back: str, others: Sequence[str]) -> None:
    """Record that a model answers again; others may still be away."""
    _write_wait(transaction, number, ", ".join(others))
    if not others:
        transaction.execute("UPDATE evaluation_waits SET outages = 0 WHERE number = ?", (number,))
    _tell(transaction, number, EventKind.EVALUATION_RESUMED, f"waited for {back}")


def put_off(transaction: Transaction, number: int) -> None:
    """Let no attempt begin for some time: the outage has lasted too long."""
    row = transaction.execute("SELECT outages FROM evaluation_waits WHERE number = ?", (number,)).fetchone()
    outages = 0 if row is None else row[0]
    rest = Backoff(FIRST_REST_SECONDS, MAX_REST_SECONDS).after(outages + 1)
    transaction.execute(
        "UPDATE evaluation_waits SET outages = ?, not_before_ns = ? WHERE number = ?",
        (outages + 1, time.time_ns() + int(rest * 1e9), number),
    )


def clear_waits(transaction: Transaction, number: int) -> None:
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


def _write_wait(transaction: Transaction, number: int, waiting_for: str) -> None:
    transaction.execute(
        """INSERT INTO evaluation_waits (number, waiting_for, outages, not_before_ns) VALUES (?, ?, 0, 0)
           ON CONFLICT (number) DO UPDATE SET waiting_for = excluded.waiting_for""",
        (number, waiting_for),
    )


def _tell(transaction: Transaction, number: int, kind: EventKind, reason: str) -> None:
    lifecycle.open_log(transaction, number)
    row = find_by_number(transaction, number)
    lifecycle.append(transaction, number, (run_events.paused(row, kind, reason),))


# What ends an attempt at an evaluation before its samples are done.

_log = structlog.get_logger(__name__)


_NONE: Mapping[str, float | int] = {}


class Ending(enum.Enum):
    """What stopped an attempt before its samples were done."""

    CANCEL = enum.auto()
    DEADLINE = enum.auto()
    STALL = enum.auto()
    FAULT = enum.auto()
    DRAIN = enum.auto()
    JOURNAL = enum.auto()
    LEFT = enum.auto()
    """The caller that has the model has disconnected."""
    OUTAGE = enum.auto()
    """A model did not answer for too long."""
    USER = enum.auto()
    """The user of the command that runs it has ended that."""


INTERRUPTS = (Ending.DRAIN, Ending.JOURNAL, Ending.LEFT, Ending.OUTAGE, Ending.USER)
"""Those that end only the attempt: the evaluation can be resumed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """How an attempt ended."""

    ending: Ending
    """What stopped it."""
    problem: Problem
    """Why."""


def stopped_by(error: BaseException) -> Stopped:
    """The end of an attempt by an error of its own work; a bug of the worker is logged."""
    if isinstance(error, BridgeError):
        return Stopped(Ending.JOURNAL if isinstance(error, JournalUnavailable) else Ending.FAULT, problem_of(error))
    if (lacking := shortage(error)) is not None:
        _log.warning("evaluation_failed", reason=lacking.reason, problem=lacking.message)
        return Stopped(Ending.FAULT, problem_of(lacking))
    message = with_id(f"{type(error).__name__} in the worker", logged(_log, "evaluation_failed", error))
    return Stopped(Ending.FAULT, Problem(reason=Reason.INTERNAL, message=message))


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


def set_paused(
    transaction: Transaction, number: int, paused: bool, *, why: str = "", bounds: Mapping[str, float | int] = _NONE
) -> EvaluationRow:
    """Pause an evaluation, or end its pause; returns its row.

    Args:
        transaction: the transaction.
        number: of the evaluation.
        paused: which of both.
        why: the bound of its budget that is reached; empty if a caller pauses it.
        bounds: what a resumption may spend, by the names of its limits.

    Raises:
        NotFound: it was removed.
        FailedPrecondition: it has ended (EVALUATION_ENDED), or its budget is spent (BUDGET_SPENT).
    """
    row = _not_ended(transaction, number)
    if not paused:
        budgets.raise_bounds(transaction, row, bounds)
        for other in budgets.waiting_of_run(transaction, row) if any(map(budgets.is_of_run, bounds)) else ():
            _continue_with_run(transaction, other)
    if why:
        budgets.note_spent(transaction, number, why)
    if row.paused == paused and not bounds:
        return find_by_number(transaction, number) if why else row
    _write(transaction, dataclasses.replace(row, paused=paused))
    if row.paused != paused:
        kind = EventKind.EVALUATION_PAUSED if paused else EventKind.EVALUATION_RESUMED
        reason = f"waits for {why}" if why else ""
        lifecycle.append(transaction, number, (run_events.paused(row, kind, reason),))
    return find_by_number(transaction, number)


def _continue_with_run(transaction: Transaction, number: int) -> None:
    """End the pause of an evaluation whose run has a larger bound now, unless a bound of its own is reached."""
    row = find_by_number(transaction, number)
    if row.state.terminal or not row.paused:
        return
    with contextlib.suppress(FailedPrecondition):
        set_paused(transaction, number, False)


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
