"""Plans in the journal, and which evaluations run their parts at each step.

The evaluations of a step are recorded in the transaction that creates them, so that neither exists without the other,
even if several workers receive the step at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from crucible_bridge.errors import AlreadyExists, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.transaction import Transaction

__all__ = [
    "Overtaken",
    "PlanRow",
    "StepRow",
    "find_plan",
    "forget_others",
    "keep",
    "record_of",
    "refuse_other_model",
    "remove_unused",
    "run_of",
    "step_rows",
    "take",
    "touch",
]


class Overtaken(Exception):
    """Raised when another call has meanwhile started an evaluation of this step with a part of this one."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRow:
    """The row of a plan; see the schema for the meaning of the columns."""

    plan_id: str
    fingerprint: str
    used_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepRow:
    """The evaluation of a part of a plan at a step."""

    fingerprint: str
    evaluation_id: str


def find_plan(source: Reads, plan_id: str) -> PlanRow | None:
    """A plan by its id, without its record, which may be large; see `record_of`."""
    row = source.execute("SELECT plan_id, fingerprint, used_ns FROM plans WHERE plan_id = ?", (plan_id,)).fetchone()
    return None if row is None else PlanRow(*row)


def run_of(source: Reads, plan_id: str) -> str | None:
    """The run of a plan; None if there is no such plan."""
    row = source.execute("SELECT run_id FROM plans WHERE plan_id = ?", (plan_id,)).fetchone()
    return None if row is None else row[0]


def record_of(source: Reads, plan_id: str) -> bytes:
    """The record of a plan.

    Raises:
        NotFound: it is no longer retained.
    """
    row = source.execute("SELECT record FROM plans WHERE plan_id = ?", (plan_id,)).fetchone()
    if row is None:
        raise _gone()
    return row[0]


def step_rows(source: Reads, plan_id: str, step: int) -> Mapping[int, StepRow]:
    """The rows of a step, by part."""
    sql = "SELECT part, fingerprint, evaluation_id FROM plan_steps WHERE plan_id = ? AND step = ? ORDER BY part"
    return {part: StepRow(*row) for part, *row in source.execute(sql, (plan_id, step))}


def refuse_other_model(rows: Mapping[int, StepRow], fingerprint: str) -> None:
    """Raise AlreadyExists if a step has evaluations of another model."""
    for row in rows.values():
        if row.fingerprint != fingerprint:
            raise AlreadyExists(
                f"is not the one of {row.evaluation_id!r}, which evaluates this step: the fingerprint of the step with "
                f"its model is {row.fingerprint}, that of this request {fingerprint}",
                reason=Reason.OTHER_MODEL,
                field="model",
                metadata={"fingerprint": row.fingerprint, "requested_fingerprint": fingerprint},
            )


def keep(transaction: Transaction, plan_id: str, run_id: str, fingerprint: str, record: bytes) -> bool:
    """Record a plan; returns whether it existed already.

    Raises:
        AlreadyExists: the id belongs to another plan.
    """
    row = find_plan(transaction, plan_id)
    if row is None:
        values = (plan_id, run_id, fingerprint, record, time.time_ns())
        transaction.execute("INSERT INTO plans VALUES (?, ?, ?, ?, ?)", values)
        return False
    if row.fingerprint != fingerprint:
        raise AlreadyExists(
            f"{plan_id!r} is another plan: its fingerprint is {row.fingerprint}, that of this one {fingerprint}",
            reason=Reason.OTHER_PLAN,
            field="plan_id",
            metadata={"fingerprint": row.fingerprint, "requested_fingerprint": fingerprint},
        )
    touch(transaction, plan_id, fingerprint)
    return True


def touch(transaction: Transaction, plan_id: str, fingerprint: str) -> None:
    """Record that a plan is used.

    Raises:
        NotFound: it is no longer retained.
    """
    sql = "UPDATE plans SET used_ns = ? WHERE plan_id = ? AND fingerprint = ?"
    if transaction.execute(sql, (time.time_ns(), plan_id, fingerprint)).rowcount == 0:
        raise _gone()


def take(
    transaction: Transaction, plan_id: str, step: int, parts: Sequence[int], fingerprint: str, evaluation_id: str
) -> None:
    """Record that an evaluation runs these parts at a step. Idempotent.

    Args:
        transaction: the one that creates the evaluation.
        plan_id: of a recorded plan.
        step: the step.
        parts: indices in the plan.
        fingerprint: of the step with its model.
        evaluation_id: the evaluation.

    Raises:
        AlreadyExists: the step has evaluations of another model.
        Overtaken: one of the parts belongs to another evaluation.
    """
    rows = step_rows(transaction, plan_id, step)
    refuse_other_model(rows, fingerprint)
    for part in parts:
        if part not in rows:
            values = (plan_id, step, part, fingerprint, evaluation_id)
            transaction.execute("INSERT INTO plan_steps VALUES (?, ?, ?, ?, ?)", values)
        elif rows[part].evaluation_id != evaluation_id:
            raise Overtaken


def forget_others(transaction: Transaction, plan_id: str, step: int, fingerprint: str) -> bool:
    """Have evaluations of another fingerprint no longer be those of a step; returns whether there were some."""
    sql = "DELETE FROM plan_steps WHERE plan_id = ? AND step = ? AND fingerprint <> ?"
    return transaction.execute(sql, (plan_id, step, fingerprint)).rowcount > 0


def remove_unused(transaction: Transaction, before_ns: int, chunk: int) -> tuple[bool, int]:
    """Remove a plan that was last used before `before_ns`, if its run has no evaluation.

    At most `chunk` rows of its steps are removed in one transaction, the plan with the last of them.

    Returns:
        Whether there may be more, and how many plans were removed.
    """
    row = transaction.execute(
        """SELECT plan_id FROM plans WHERE used_ns < ?
           AND NOT EXISTS (SELECT 1 FROM evaluations WHERE evaluations.run_id = plans.run_id) LIMIT 1""",
        (before_ns,),
    ).fetchone()
    if row is None:
        return False, 0
    removed = transaction.execute(
        """DELETE FROM plan_steps WHERE plan_id = ? AND (step, part) IN
           (SELECT step, part FROM plan_steps WHERE plan_id = ? LIMIT ?)""",
        (*row, *row, chunk),
    ).rowcount
    if removed == chunk:
        return True, 0
    transaction.execute("DELETE FROM plans WHERE plan_id = ?", row)
    return True, 1


def _gone() -> NotFound:
    return NotFound("is that of a plan which is no longer retained", reason=Reason.UNKNOWN_PLAN, field="plan_id")
