"""Plans in the journal, with and without patience, and which evaluations run their parts at each step.

The evaluations of a step are recorded in the transaction that creates them, so that neither exists without the other,
even if several workers receive the step at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from crucible_bridge.errors import AlreadyExists, NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState, Goal, Patience
from crucible_worker.journal.packing import pack_text, unpack_text
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.store import Transaction

__all__ = [
    "Overtaken",
    "PatientPlan",
    "PatientRow",
    "PatientStep",
    "PlanRow",
    "PlannedStep",
    "Plateau",
    "StepRow",
    "due_plans",
    "find_patient",
    "find_plan",
    "forget_from",
    "forget_others",
    "is_new",
    "keep",
    "new_steps",
    "note_file",
    "patient_steps",
    "plateau_of",
    "record_of",
    "refuse_other_model",
    "remove_unused",
    "replace_steps",
    "run_of",
    "step_rows",
    "take",
    "touch",
    "watch",
]

# Plans with patience in the journal: settings, the steps that were looked at, and the events that were written.


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

    @property
    def goal(self) -> Goal:
        """Which values are better; one that its registration found if the plan names none."""
        assert self.patience.goal is not None
        return self.patience.goal


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """What the steps of a plan have come to: no better one for as long as its patience."""

    plan: PatientPlan
    best: PatientStep
    """The best step."""
    last: PatientStep
    """The last one that was looked at."""


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
            "patience": {**dataclasses.asdict(plan.patience), "goal": plan.goal.value},
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


def plateau_of(source: Reads, plan_id: str) -> Plateau | None:
    """The plateau on which a plan stands now; None if it stands on none, or has no patience."""
    row = find_patient(source, plan_id)
    steps = [] if row is None else patient_steps(source, plan_id)
    if row is None or not steps or steps[-1].since < row.plan.patience.patience:
        return None
    best = next((one for one in steps if one.step == steps[-1].best_step), None)
    return None if best is None else Plateau(plan=row.plan, best=best, last=steps[-1])


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
