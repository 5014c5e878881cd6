"""The transitions of an evaluation's life, each one transaction: the row, its samples and its events together.

`claims` has the beginning of an attempt. Each function here is submitted to the journal's writer. An owner's lock is
taken inside the transaction that records the claim, and released after the one that ends the attempt. So an evaluation
that is recorded as running, with a free lock, has always lost its owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import structlog

from crucible_bridge.errors import NotFound
from crucible_bridge.events import Event
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluationState,
    EvaluatorResult,
    Metrics,
    Problem,
    ServerEngine,
    Usage,
)
from crucible_worker.events import run_events
from crucible_worker.history import resumptions, run_registry
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, find_by_number, list_rows, spent_of
from crucible_worker.journal.records import (
    Ended,
    evaluator_result_from_record,
    request_from_record,
    result_from_record,
    result_to_record,
)
from crucible_worker.journal.store import Owners
from crucible_worker.journal.usage import total_usage

__all__ = [
    "Reaper",
    "append",
    "cancel",
    "complete",
    "end",
    "interrupt",
    "keep_time",
    "mark_running",
    "open_log",
    "progress",
    "reap",
    "undo_end",
]


_log = structlog.get_logger(__name__)

_LIVE = (EvaluationState.QUEUED, EvaluationState.RUNNING)


def append(transaction: Transaction, number: int, events: Sequence[Event]) -> int:
    """Append events of an evaluation; returns the sequence of the last one."""
    last = transaction.append(number, events)
    transaction.execute("UPDATE evaluations SET last_sequence = ? WHERE number = ?", (last, number))
    return last


def open_log(transaction: Transaction, number: int, worker_id: str | None = None) -> None:
    """Append START, the first event of an evaluation, unless it is in the log.

    It comes when the samples have been counted. If an attempt ends earlier, START comes just before its end and without
    the total, so that every evaluation that ends has a START.

    Args:
        transaction: the transaction.
        number: the evaluation's.
        worker_id: the worker that has counted them.
    """
    row = find_by_number(transaction, number)
    if row.first_sequence == 0:
        first = append(transaction, number, (run_events.start(row, worker_id),))
        transaction.execute("UPDATE evaluations SET first_sequence = ? WHERE number = ?", (first, number))


def mark_running(transaction: Transaction, number: int) -> None:
    """Record that the evaluation's turn has come."""
    transaction.execute("UPDATE evaluations SET state = ? WHERE number = ?", (EvaluationState.RUNNING, number))


def keep_time(transaction: Transaction, number: int, active_ns: int) -> None:
    """Write the time with this owner, so that the deadline is nearly exact if the owner dies."""
    transaction.execute("UPDATE evaluations SET active_ns = ? WHERE number = ?", (active_ns, number))


def progress(
    transaction: Transaction,
    row: EvaluationRow,
    samples_per_second: float,
    active_ns: int,
    questions: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Append the progress."""
    now = find_by_number(transaction, row.number)
    append(transaction, row.number, (run_events.progress(now, samples_per_second, questions),))
    keep_time(transaction, row.number, active_ns)


def complete(
    transaction: Transaction,
    locks: Owners,
    row: EvaluationRow,
    *,
    metrics: Metrics,
    results: Sequence[EvaluatorResult],
    sample_count: int,
    active_ns: int,
    engine: ServerEngine | None = None,
) -> None:
    """End with metrics, once every evaluator has ended: COMPLETE, then STOP. See `_why_failed` for FAILED."""
    duration_ns = row.past_active_ns + active_ns
    ended = Ended(metrics=metrics, results=tuple(results), usage=total_usage(results), engine=engine)
    if (problem := _why_failed(results)) is not None:
        events = [run_events.exception(row, problem, duration_ns)]
        ended = dataclasses.replace(ended, problem=problem)
        _finish(transaction, locks, row, EvaluationState.FAILED, events, active_ns, ended)
        return
    events = [
        run_events.complete(row, metrics, sample_count, duration_ns, ended.usage),
        run_events.stop(row, EvaluationState.COMPLETED, duration_ns),
    ]
    _finish(transaction, locks, row, EvaluationState.COMPLETED, events, active_ns, ended)


def _why_failed(results: Sequence[EvaluatorResult]) -> Problem | None:
    """Why an evaluation with these results has failed: one has too many samples without a score, or none finished."""
    problems = [(result.evaluator.label, result.problem) for result in results if result.problem is not None]
    unscored = [(label, problem) for label, problem in problems if problem.reason == Reason.TOO_MANY_UNSCORED]
    retryable = any(problem.retryable for _, problem in problems)
    if unscored:
        (label, first), *_ = unscored
        return dataclasses.replace(
            first, message=shorten(f"{label}: {first.message}", MAX_PROBLEM_BYTES), retryable=retryable
        )
    if len(problems) < len(results):
        return None
    message = shorten(f"every evaluator failed, the first with {problems[0][1].message}", MAX_PROBLEM_BYTES)
    return Problem(reason=Reason.NO_EVALUATOR_FINISHED, message=message, retryable=retryable)


def end(
    transaction: Transaction,
    locks: Owners,
    row: EvaluationRow,
    state: EvaluationState,
    problem: Problem,
    active_ns: int,
    *,
    usage: Usage | None = None,
    engine: ServerEngine | None = None,
) -> None:
    """End without metrics: CANCELLED, with one STOP, or FAILED, with one EXCEPTION.

    If no owner knows the usage, it is the one that the last owner wrote when it was interrupted.
    """
    before = Ended(metrics=Metrics({})) if row.result is None else result_from_record(row.result, row.apart)
    ended = dataclasses.replace(before, problem=problem, usage=usage or before.usage, engine=engine or before.engine)
    duration_ns = row.past_active_ns + active_ns
    if state is EvaluationState.CANCELLED:
        event = run_events.stop(row, state, duration_ns, problem)
    else:
        event = run_events.exception(row, problem, duration_ns)
    _finish(transaction, locks, row, state, (event,), active_ns, ended)


def interrupt(
    transaction: Transaction,
    locks: Owners,
    row: EvaluationRow,
    active_ns: int,
    cause: str,
    *,
    held: bool = False,
    usage: Usage | None = None,
    engine: ServerEngine | None = None,
) -> None:
    """End this attempt, not the evaluation; its usage until now is written. Held: it waits for a call."""
    _write_so_far(transaction, row.number, usage, engine)
    _write_interrupt(transaction, find_by_number(transaction, row.number), active_ns, cause, held=held)
    locks.release_in(transaction, row.number)


def reap(transaction: Transaction, locks: Owners, number: int, usage: Usage | None = None) -> bool:
    """Write what a dead owner could not: its INTERRUPT, then the end if a cancel was pending. False: nothing to write.

    Args:
        transaction: the transaction.
        locks: this worker's.
        number: the evaluation's.
        usage: of its samples, unless it resumes at once.
    """
    row = find_by_number(transaction, number)
    if row.state not in _LIVE or not locks.is_free(number, transaction):
        return False
    if usage is not None:
        engine = None if row.result is None else result_from_record(row.result, row.apart).engine
        _write_so_far(transaction, number, usage, engine)
    _write_interrupt(transaction, row, row.active_ns, "the owner died or could not write", died=True)
    if row.cancel_reason is not None:
        _end_cancelled(transaction, locks, find_by_number(transaction, number), row.cancel_reason)
    return True


def undo_end(transaction: Transaction, row: EvaluationRow) -> None:
    """Make an evaluation that has failed one that can be resumed; its events and what it used stay.

    Evaluators with a problem begin again. If no sample has a score, every one is run again.
    """
    ended = Ended(metrics=Metrics({})) if row.result is None else result_from_record(row.result, row.apart)
    so_far = result_to_record(Ended(metrics=Metrics({}), usage=ended.usage, engine=ended.engine))
    transaction.execute(
        "UPDATE evaluations SET ended_ns = 0, cancel_reason = NULL, result = ? WHERE number = ?", (so_far, row.number)
    )
    specs = request_from_record(row.request, row.apart).evaluators
    spans = "FROM evaluator_spans WHERE number = ? AND result IS NOT NULL"
    for index, record in transaction.execute(f"SELECT evaluator, result {spans}", (row.number,)).fetchall():
        if evaluator_result_from_record(specs[index], record).problem is not None:
            transaction.execute(f"DELETE {spans} AND evaluator = ?", (row.number, index))
    if row.done == row.unscored:
        transaction.execute("UPDATE samples SET retryable = 1 WHERE number = ?", (row.number,))
    run_registry.forget_measurement(transaction, row.number)
    # The one that is there is of the failed attempt.
    transaction.execute("DELETE FROM log_files WHERE number = ?", (row.number,))


def cancel(transaction: Transaction, locks: Owners, number: int, reason: str) -> EvaluationRow:
    """Request the owner to end an evaluation; without an owner, end it here."""
    row = find_by_number(transaction, number)
    if row.state.terminal:
        return row
    reason = shorten(reason, MAX_PROBLEM_BYTES)
    if locks.is_free(number, transaction):
        reap(transaction, locks, number)
        row = find_by_number(transaction, number)
        if not row.state.terminal:
            _end_cancelled(transaction, locks, row, reason)
        return find_by_number(transaction, number)
    if row.cancel_reason is None:
        transaction.execute("UPDATE evaluations SET cancel_reason = ? WHERE number = ?", (reason, number))
    return row


def _end_cancelled(transaction: Transaction, locks: Owners, row: EvaluationRow, reason: str) -> None:
    problem = Problem(reason=Reason.CANCELLED, message=reason or "cancelled")
    end(transaction, locks, row, EvaluationState.CANCELLED, problem, row.active_ns)


def _write_so_far(transaction: Transaction, number: int, usage: Usage | None, engine: ServerEngine | None) -> None:
    if usage is not None or engine is not None:
        so_far = result_to_record(Ended(metrics=Metrics({}), usage=usage, engine=engine))
        transaction.execute("UPDATE evaluations SET result = ? WHERE number = ?", (so_far, number))


def _write_interrupt(
    transaction: Transaction, row: EvaluationRow, active_ns: int, cause: str, *, died: bool = False, held: bool = False
) -> None:
    transaction.execute(
        "UPDATE evaluations SET state = ?, interrupted_ns = ?, active_ns = ? WHERE number = ?",
        (EvaluationState.INTERRUPTED, time.time_ns(), active_ns, row.number),
    )
    resumptions.note(transaction, row, died=died, held=held)
    open_log(transaction, row.number)
    now = dataclasses.replace(row, active_ns=active_ns)
    append(transaction, row.number, (run_events.interrupt(now, cause),))
    _log_after_commit(transaction, row.number, "evaluation_interrupted", cause=cause)


def _log_after_commit(transaction: Transaction, number: int, event: str, **more: object) -> None:
    """Log the end of an attempt, in one line."""
    row = find_by_number(transaction, number)
    transaction.after_commit(
        lambda: _log.info(
            event,
            evaluation_id=row.evaluation_id,
            run_id=row.run_id or None,
            attempt=row.attempt,
            **more,
            done=row.done,
            total=row.total,
            unscored=row.unscored,
            seconds=round((row.past_active_ns + row.active_ns) / 1e9, 3),
        )
    )


def _finish(
    transaction: Transaction,
    locks: Owners,
    row: EvaluationRow,
    state: EvaluationState,
    events: Sequence[Event],
    active_ns: int,
    ended: Ended,
) -> None:
    transaction.execute(
        "UPDATE evaluations SET state = ?, ended_ns = ?, active_ns = ?, result = ? WHERE number = ?",
        (state, time.time_ns(), active_ns, result_to_record(ended), row.number),
    )
    open_log(transaction, row.number)
    append(transaction, row.number, events)
    run_registry.keep_measurement(transaction, row.number)
    transaction.on_end(transaction, row.number)
    locks.release_in(transaction, row.number)
    reason = None if ended.problem is None else ended.problem.reason
    _log_after_commit(transaction, row.number, "evaluation_ended", state=state.value, reason=reason)


# Finds evaluations that have lost their owner, so that they can be resumed.


class Reaper:
    """Recognizes evaluations that have lost their owner, and writes their INTERRUPT."""

    def __init__(self, journal: Journal, locks: Owners) -> None:
        self._journal = journal
        self._locks = locks

    async def is_orphan(self, number: int, state: EvaluationState) -> bool:
        """Whether it is recorded as running, and no worker owns it."""
        return state in _LIVE and await self._locks.looks_free(number)

    async def reap(self, row: EvaluationRow) -> EvaluationRow:
        """Write the INTERRUPT of an evaluation if it is an orphan; returns its state then.

        While the journal cannot be written, it counts as interrupted all the same; the event is written later.
        """
        if not await self.is_orphan(row.number, row.state):
            return row
        # Read before the transaction, as there may be millions of samples, and other writers wait for a transaction.
        usage = await self._journal.read(spent_of, row.number)
        try:
            await self._journal.submit(lambda transaction: reap(transaction, self._locks, row.number, usage))
        except JournalUnavailable:
            return dataclasses.replace(row, state=EvaluationState.INTERRUPTED)
        return await self._journal.read(find_by_number, row.number)

    async def reap_all(self) -> None:
        """Write the INTERRUPT of every orphan of the machine."""
        for row in await self._journal.read(_live_rows):
            with contextlib.suppress(NotFound):  # it has been deleted meanwhile
                await self.reap(row)


def _live_rows(connection: Reads) -> list[EvaluationRow]:
    return list_rows(connection, states=_LIVE)[0]
