"""The version of the rules by which evaluations measure, and what evaluations of two versions may do with each other.

    version 1: "...France?" and "Paris" are joined to "...France?Paris"
    version 2: they are joined to "...France? Paris"

Raise `RULES_VERSION` with each change that gives another number for the same request: how prompts and targets are
joined, what of an answer is graded (reasoning, stop strings), the tokens before a prompt, how values of files are read,
graders. `docs/upgrading.md` has a row for each version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal import Transaction
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.reports.facts import rules_in_words

__all__ = ["RULES_VERSION", "of_latest_rules", "other_rules", "record_rules", "refuse_other_rules"]

RULES_VERSION = 2
"""Of this release."""


class _Measured(Protocol):
    @property
    def rules_version(self) -> int: ...


_T = TypeVar("_T", bound=_Measured)


def record_rules(transaction: Transaction, number: int, attempt: int) -> None:
    """Record that an attempt measures by the rules of this release, in the transaction that begins it."""
    transaction.execute("INSERT OR REPLACE INTO evaluation_rules VALUES (?, ?, ?)", (number, RULES_VERSION, attempt))


def other_rules(row: EvaluationRow) -> bool:
    """Whether other rules have begun an evaluation; without a result of a sample, nothing has begun."""
    return row.rules != RULES_VERSION and row.done > 0


def refuse_other_rules(row: EvaluationRow) -> None:
    """Refuse to resume what other rules have begun, see `other_rules`.

    Raises:
        FailedPrecondition: it was begun by other rules (RULES_CHANGED).
    """
    if not other_rules(row):
        return
    raise FailedPrecondition(
        f"{row.evaluation_id!r} was begun by rules {rules_in_words(row.rules)}, this release has "
        f"{rules_in_words(RULES_VERSION)}: start it under another id, or finish it with the release that began it",
        reason=Reason.RULES_CHANGED,
        field="evaluation_id",
        metadata={"rules_version": str(row.rules), "present_rules_version": str(RULES_VERSION)},
    )


def of_latest_rules(measured: Iterable[_T]) -> Sequence[_T]:
    """Those of the latest version among them, in their order."""
    found = list(measured)
    latest = max((one.rules_version for one in found), default=0)
    return [one for one in found if one.rules_version == latest]
