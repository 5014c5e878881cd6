"""Plans with patience in the journal: settings, the steps that were looked at, and the events that were written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Goal, Patience
from crucible_worker.journal.packing import pack_text, unpack_text
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.transaction import Transaction

__all__ = [
    "PatientPlan",
    "PatientRow",
    "PatientStep",
    "PlannedStep",
    "due_plans",
    "find_patient",
    "forget_from",
    "is_new",
    "new_steps",
    "note_file",
    "patient_steps",
    "replace_steps",
    "watch",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PatientPlan:
    """What is known of a plan with patience, without its evaluations."""

    plan_id: str
    """The plan."""
    run_id: str
    """Its run."""
    correlation_id: str
    """Of its events."""
    patience: Patience
    """The metric, and how long a better value of it is waited for."""
    parts: tuple[int, ...]
    """Indices of the parts of the plan that can yield the metric."""
    best_file: bool
    """Whether the file BEST is written."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PatientRow:
    """How far the steps of a plan have been looked at; see the schema for the meaning of the columns."""

    plan: PatientPlan
    pending: int
    turn: int
    best_step: int | None
    written_step: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PatientStep:
    """A step with the metric, and what was the best when it was reached."""

    step: int
    evaluation_id: str
    model: str
    value: float
    best_step: int
    """The best step of those up to this one."""
    since: int
    """Evaluations since that step."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedStep:
    """An evaluation of a step that has not been looked at."""

    step: int
    evaluation_id: str
    state: EvaluationState | None
    """None if the evaluation is no longer retained."""


def watch(transaction: Transaction, plan: PatientPlan) -> None:
    """Record that the steps of a plan are looked at."""
    record = pack_text(
        {
            "run_id": plan.run_id,
            "correlation_id": plan.correlation_id,
            "patience": {**dataclasses.asdict(plan.patience), "goal": plan.patience.goal.value},
            "parts": list(plan.parts),
        }
    )
    sql = "INSERT OR IGNORE INTO patient_plans (plan_id, record, best_file) VALUES (?, ?, ?)"
    transaction.execute(sql, (plan.plan_id, record, plan.best_file))


def due_plans(source: Reads) -> Sequence[str]:
    """Plans of which something has ended since they were looked at, or whose file is not that of the best step."""
    sql = """SELECT plan_id FROM patient_plans WHERE pending > 0 OR (best_file <> 0
             AND (best_step <> written_step OR (best_step IS NULL) <> (written_step IS NULL)))"""
    return [plan_id for (plan_id,) in source.execute(sql)]


def find_patient(source: Reads, plan_id: str) -> PatientRow | None:
    """A plan with patience; None if it is no longer retained."""
    sql = "SELECT record, best_file, pending, turn, best_step, written_step FROM patient_plans WHERE plan_id = ?"
    row = source.execute(sql, (plan_id,)).fetchone()
    if row is None:
        return None
    record, best_file, pending, turn, best_step, written_step = row
    data = unpack_text(record)
    patience = Patience(**{**data["patience"], "goal": Goal(data["patience"]["goal"])})
    plan = PatientPlan(
        plan_id=plan_id,
        run_id=data["run_id"],
        correlation_id=data["correlation_id"],
        patience=patience,
        parts=tuple(data["parts"]),
        best_file=bool(best_file),
    )
    return PatientRow(plan=plan, pending=pending, turn=turn, best_step=best_step, written_step=written_step)


def new_steps(source: Reads, plan: PatientPlan) -> Sequence[PlannedStep]:
    """Evaluations that can yield the metric, of steps that have not been looked at, by step."""
    marks = ", ".join("?" * len(plan.parts))
    sql = f"""SELECT planned.step, planned.evaluation_id, evaluations.state FROM plan_steps AS planned
              LEFT JOIN evaluations ON evaluations.evaluation_id = planned.evaluation_id
              WHERE planned.plan_id = ? AND planned.part IN ({marks})
              AND planned.step NOT IN (SELECT step FROM patient_steps WHERE plan_id = planned.plan_id)
              ORDER BY planned.step, planned.part"""
    rows = source.execute(sql, (plan.plan_id, *plan.parts)).fetchall()
    return [PlannedStep(step, name, None if state is None else EvaluationState(state)) for step, name, state in rows]


def patient_steps(source: Reads, plan_id: str) -> Sequence[PatientStep]:
    """The steps that have been looked at, in their order."""
    sql = """SELECT step, evaluation_id, model, value, best_step, since FROM patient_steps
             WHERE plan_id = ? ORDER BY step"""
    names = [field.name for field in dataclasses.fields(PatientStep)]
    return [PatientStep(**dict(zip(names, row, strict=True))) for row in source.execute(sql, (plan_id,))]


def replace_steps(transaction: Transaction, row: PatientRow, steps: Sequence[PatientStep]) -> bool:
    """Record steps in the place of those from the first of them on; False if another worker has looked meanwhile.

    Args:
        transaction: the transaction.
        row: the plan as it was when the steps were read.
        steps: at the end of all; none if nothing has changed.
    """
    plan_id = row.plan.plan_id
    best_step = steps[-1].best_step if steps else row.best_step
    looked = transaction.execute(
        "UPDATE patient_plans SET turn = turn + 1, pending = pending - ?, best_step = ? WHERE plan_id = ? AND turn = ?",
        (row.pending, best_step, plan_id, row.turn),
    ).rowcount
    if not looked:
        return False
    if steps:
        sql = "DELETE FROM patient_steps WHERE plan_id = ? AND step >= ?"
        transaction.execute(sql, (plan_id, steps[0].step))
        rows = [(plan_id, one.step, one.evaluation_id, one.model, one.value, one.best_step, one.since) for one in steps]
        transaction.insert("INSERT INTO patient_steps VALUES", rows)
    return True


def is_new(transaction: Transaction, plan_id: str, kind: EventKind, step: int) -> bool:
    """Record that an event of a plan is in the log; False if it was already."""
    sql = "INSERT OR IGNORE INTO patient_events VALUES (?, ?, ?)"
    return transaction.execute(sql, (plan_id, kind.value, step)).rowcount > 0


def forget_from(transaction: Transaction, plan_id: str, step: int) -> None:
    """Have a step, and those after it, be looked at again: its checkpoint was written again."""
    transaction.execute("DELETE FROM patient_steps WHERE plan_id = ? AND step >= ?", (plan_id, step))
    transaction.execute("DELETE FROM patient_events WHERE plan_id = ? AND step = ?", (plan_id, step))
    transaction.execute(
        """UPDATE patient_plans SET turn = turn + 1, pending = pending + 1,
           best_step = (SELECT best_step FROM patient_steps WHERE patient_steps.plan_id = patient_plans.plan_id
                        ORDER BY step DESC LIMIT 1),
           written_step = CASE WHEN written_step = ? THEN NULL ELSE written_step END
           WHERE plan_id = ?""",
        (step, plan_id),
    )


def note_file(transaction: Transaction, plan_id: str, step: int) -> None:
    """Record which step the file of a plan has."""
    transaction.execute("UPDATE patient_plans SET written_step = ? WHERE plan_id = ?", (step, plan_id))
