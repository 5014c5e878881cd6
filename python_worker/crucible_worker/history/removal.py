"""How an evaluation is removed from the journal: in one moment for every reader, then its rows by chunks.

The first transaction hides it: no query finds it, and its id is free. Its rows follow, at most a chunk in each
transaction, as other writers wait meanwhile. If the worker dies in between, retention removes the rest. Its events stay
in the log, so that no stream loses its place.
"""

from __future__ import annotations

import collections
import secrets

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.history import checkpoint_results, lifecycle
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow, find_by_number
from crucible_worker.journal.store import Owners

__all__ = ["CHUNK", "delete", "hide", "remove_chunk"]

CHUNK = 10_000
"""Rows removed in one transaction: other writers wait for it."""
_HIDDEN_ID_BYTES = 128
"""Twice as many characters name a hidden evaluation: more than an id may have, so that no caller can name it."""


def delete(transaction: Transaction, locks: Owners, number: int) -> EvaluationRow:
    """Hide an evaluation that has ended; one without an owner is cancelled first. Returns its last state.

    Raises:
        NotFound: it was removed meanwhile.
        FailedPrecondition: a worker owns it (NOT_ENDED).
    """
    row = find_by_number(transaction, number)
    if not row.state.terminal:
        if not locks.is_free(number, transaction):
            raise FailedPrecondition(
                f"is {row.evaluation_id!r}, which is {row.state.value}: cancel it first "
                "(CancelEvaluation, crucible-worker cancel)",
                reason=Reason.NOT_ENDED,
                field="evaluation_id",
            )
        row = lifecycle.cancel(transaction, locks, number, "deleted")
    checkpoint_results.forget(transaction, number)
    hide(transaction, number)
    return row


def hide(transaction: Transaction, number: int) -> None:
    """Hide an evaluation from every query, and free its id."""
    transaction.execute("INSERT INTO removals VALUES (?)", (number,))
    transaction.execute(
        "UPDATE evaluations SET evaluation_id = ? WHERE number = ?", (secrets.token_hex(_HIDDEN_ID_BYTES), number)
    )


def remove_chunk(transaction: Transaction, chunk: int, counts: collections.Counter[str] | None = None) -> bool:
    """Remove a chunk of the rows of a hidden evaluation; False if nothing is hidden.

    Args:
        transaction: the transaction.
        chunk: rows at most.
        counts: gets the numbers of samples and evaluations removed.
    """
    row = transaction.execute("SELECT number FROM removals LIMIT 1").fetchone()
    if row is None:
        return False
    (number,) = row
    removed = transaction.execute(
        """DELETE FROM samples WHERE number = ? AND (position, evaluator, repeat) IN
           (SELECT position, evaluator, repeat FROM samples WHERE number = ? LIMIT ?)""",
        (number, number, chunk),
    ).rowcount
    gone = removed < chunk and _remove_contents(transaction, number, chunk) < chunk
    if gone:
        transaction.execute("DELETE FROM evaluations WHERE number = ?", (number,))
    if counts is not None:
        counts["samples"] += removed
        counts["evaluations"] += gone
    return True


def _remove_contents(transaction: Transaction, number: int, chunk: int) -> int:
    """Remove a chunk of the contents of a data set that no other evaluation records; returns how many rows."""
    return transaction.execute(
        """DELETE FROM dataset_contents WHERE (dataset, position) IN (
               SELECT dataset, position FROM dataset_contents WHERE dataset = (
                   SELECT dataset FROM recorded_evaluations AS one WHERE number = ? AND NOT EXISTS (
                       SELECT 1 FROM recorded_evaluations AS other
                       WHERE other.dataset = one.dataset AND other.number <> one.number)) LIMIT ?)""",
        (number, chunk),
    ).rowcount
