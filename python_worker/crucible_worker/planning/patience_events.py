"""The events of a plan with patience: a new best step, and a plateau."""

from __future__ import annotations

import dataclasses
import time

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import ScoredCount, parse_model
from crucible_worker.journal.patient_plans import PatientPlan, PatientStep
from crucible_worker.util.held_paths import format_own_model

__all__ = ["Improvement", "best_event", "plateau_event"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How a step compares with the best one before it."""

    better: bool
    """Whether it is credibly better."""
    by: str
    """"first" (by these rules of measurement, or with enough scores), "paired" or "value".

    Empty if rules before those of the best have measured it, or if it has too few scores: then it does not count.
    """
    difference: float = 0.0
    """Of the samples' scores, by "paired" their mean; else of the two values."""
    interval: tuple[float, float] | None = None
    """Of that difference, by "paired"."""
    not_paired: str = ""
    """By "value": the reason."""


def best_event(
    plan: PatientPlan,
    best: PatientStep | None,
    point: PatientStep,
    found: Improvement,
    scored: ScoredCount | None,
) -> Event:
    """RUN_BEST.

    Args:
        plan: the plan.
        best: the best step before; None if this is the first step.
        point: the new best step.
        found: how it compares.
        scored: what its value is made of; None if that is not known.
    """
    measurements = {"value": point.value}
    if scored is not None:
        measurements |= {"n": float(scored.n), "n_scored": float(scored.n_scored)}
    metadata = {"evaluation_id": point.evaluation_id, "model": _model(point), "by": found.by}
    if best is not None:
        measurements |= {"previous_value": best.value, "difference": found.difference}
        metadata |= {"previous_step": str(best.step), "previous_evaluation_id": best.evaluation_id}
    if found.interval is not None:
        measurements |= dict(zip(("difference_ci_low", "difference_ci_high"), found.interval, strict=True))
    if found.not_paired:
        metadata["not_paired"] = str(found.not_paired)
    return _event(plan, EventKind.RUN_BEST, point.step, measurements, metadata)


def plateau_event(plan: PatientPlan, best: PatientStep, point: PatientStep, since: int) -> Event:
    """RUN_PLATEAU: so many evaluations since the best step, of which `point` is the last, brought no new one."""
    measurements = {"value": best.value, "last_value": point.value, "evaluations": float(since)}
    metadata = {
        "evaluation_id": point.evaluation_id,
        "model": _model(point),
        "best_step": str(best.step),
        "best_evaluation_id": best.evaluation_id,
        "best_model": _model(best),
    }
    return _event(plan, EventKind.RUN_PLATEAU, point.step, measurements, metadata)


def _model(step: PatientStep) -> str:
    return format_own_model(parse_model(step.model))


def _event(
    plan: PatientPlan, kind: EventKind, step: int, measurements: dict[str, float], metadata: dict[str, str]
) -> Event:
    named = {"metric": plan.patience.metric, "goal": plan.patience.goal.value, "plan_id": plan.plan_id}
    return Event(
        kind=kind,
        unix_time_ns=time.time_ns(),
        run_id=plan.run_id,
        step=step,
        measurements=measurements,
        metadata=named | metadata,
        correlation_id=plan.correlation_id,
    )
