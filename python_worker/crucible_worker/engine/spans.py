"""Beginning and end of each evaluator: EVALUATOR_START, then its end, each once over all attempts at the evaluation.

The journal records both, in the transaction of the event. An evaluator that has ended is final: a later attempt runs
none of its samples again, and uses its result unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from crucible_bridge.types import EvaluatorResult
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads
from crucible_worker.journal.records import evaluator_result_to_record

__all__ = ["begin", "end", "recorded_spans"]


def recorded_spans(source: Reads, number: int) -> Mapping[int, bytes | None]:
    """The evaluators of an evaluation that have begun, by index, each with the record of its result if it has ended."""
    return dict(source.execute("SELECT evaluator, result FROM evaluator_spans WHERE number = ?", (number,)))


def begin(transaction: Transaction, row: EvaluationRow, index: int, *, label: str, total: int, active_ns: int) -> None:
    """Record that an evaluator begins, unless an earlier attempt has recorded it.

    Args:
        transaction: the transaction.
        row: the evaluation as claimed.
        index: the evaluator's index in the request.
        label: the evaluator's name, or its kind.
        total: its runs of samples.
        active_ns: time with this owner so far.
    """
    # A duration is a difference of the evaluation's active time, so this time must be written as well.
    lifecycle.keep_time(transaction, row.number, active_ns)
    (started_ns,) = transaction.execute(
        "SELECT past_active_ns + active_ns FROM evaluations WHERE number = ?", (row.number,)
    ).fetchone()
    cursor = transaction.execute(
        "INSERT OR IGNORE INTO evaluator_spans VALUES (?, ?, ?, NULL)", (row.number, index, started_ns)
    )
    if cursor.rowcount:
        lifecycle.append(transaction, row.number, (run_events.evaluator_start(row, label, total),))


def end(transaction: Transaction, row: EvaluationRow, index: int, result: EvaluatorResult, active_ns: int) -> None:
    """Record the end of an evaluator that has begun: EVALUATOR_COMPLETE, or EVALUATOR_EXCEPTION if it failed."""
    lifecycle.keep_time(transaction, row.number, active_ns)
    where = "WHERE number = ? AND evaluator = ?"
    (started_ns,) = transaction.execute(
        f"SELECT started_ns FROM evaluator_spans {where}", (row.number, index)
    ).fetchone()
    transaction.execute(
        f"UPDATE evaluator_spans SET result = ? {where}", (evaluator_result_to_record(result), row.number, index)
    )
    duration_ns = row.past_active_ns + active_ns - started_ns
    lifecycle.append(transaction, row.number, (run_events.evaluator_end(row, result, duration_ns),))
