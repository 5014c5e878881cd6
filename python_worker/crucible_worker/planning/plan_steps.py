"""What a plan evaluates at a step: which of its parts are due, and which evaluations run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from crucible_bridge.types import EvaluateRequest, EvaluationPlan, ModelRef, PlannedEvaluation
from crucible_worker.engine.specification import settings_fingerprint

__all__ = ["StepEvaluation", "due_parts", "evaluations_at", "parts_of", "path_in_plan", "path_of_part", "request_of"]

CONTENT_SHOWN = 8
"""Characters of a checkpoint's content in the id of its evaluations."""
_PART_FIELDS = ("dataset", "labels", "limits", "metric_prefix", "models", "record", "sampling")


@dataclasses.dataclass(frozen=True, slots=True)
class StepEvaluation:
    """An evaluation at a step, of one or more parts of the plan."""

    evaluation_id: str
    """Its identity."""
    parts: tuple[int, ...]
    """Indices of its parts in the plan."""


def parts_of(plan: EvaluationPlan) -> tuple[PlannedEvaluation, ...]:
    """Every planned evaluation by its index: the frequent ones, then the infrequent ones."""
    return (*plan.evaluations, *plan.infrequent_evaluations)


def path_of_part(plan: EvaluationPlan, part: int) -> str:
    """Path of a part in its plan, for errors."""
    often = len(plan.evaluations)
    return f"evaluations[{part}]" if part < often else f"infrequent_evaluations[{part - often}]"


def due_parts(plan: EvaluationPlan, step: int, *, last: bool) -> tuple[int, ...]:
    """Indices of the parts that are due at a step: those with an interval that divides it; at the last step, all."""
    often, count = len(plan.evaluations), len(parts_of(plan))
    due: list[int] = []
    if last or _divides(plan.eval_every, step):
        due += range(often)
    if last or _divides(plan.infrequent_eval_every, step):
        due += range(often, count)
    return tuple(due)


def evaluations_at(
    plan: EvaluationPlan, step: int, due: Sequence[int], taken: Mapping[int, str], content: str = ""
) -> tuple[StepEvaluation, ...]:
    """The evaluations of the parts that are due: the existing ones, and new ones for the other parts.

    Parts that differ only in their evaluators share one evaluation. An existing evaluation never changes: a step that
    turns out to be the last one gets further evaluations.

    Args:
        plan: the plan.
        step: the step.
        due: indices of the parts that are due, in order.
        taken: by index, the evaluation that a part has at this step.
        content: of a checkpoint that was written again at its step, part of the ids of its evaluations.
    """
    had = dict.fromkeys(taken[part] for part in due if part in taken)
    found = [StepEvaluation(name, tuple(part for part in sorted(taken) if taken[part] == name)) for name in had]
    new = _together(plan, (part for part in due if part not in taken))
    which = f"-{content[:CONTENT_SHOWN]}" if content else ""
    found += [StepEvaluation(f"{plan.plan_id}-step-{step}-{parts[0]}{which}", parts) for parts in new]
    return tuple(sorted(found, key=lambda evaluation: evaluation.parts))


def request_of(plan: EvaluationPlan, step: int, model: ModelRef, evaluation: StepEvaluation) -> EvaluateRequest:
    """The request to the engine."""
    parts = parts_of(plan)
    first = parts[evaluation.parts[0]]
    return EvaluateRequest(
        evaluation_id=evaluation.evaluation_id,
        run_id=plan.run_id,
        step=step,
        model=model,
        evaluators=tuple(spec for part in evaluation.parts for spec in parts[part].evaluators),
        dataset=first.dataset,
        sampling=first.sampling,
        limits=first.limits,
        metric_prefix=first.metric_prefix,
        labels=first.labels,
        correlation_id=plan.correlation_id,
        record=first.record,
        log_to=plan.log_to,
        models=first.models,
    )


def path_in_plan(plan: EvaluationPlan, parts: Sequence[int], field: str) -> str:
    """The path in the plan of a field of an evaluation's request; unchanged if the field is not from the plan."""
    name, _, rest = field.partition("[")
    if name == "evaluators" and rest:
        number, _, inside = rest.partition("]")
        index = int(number)
        for part in parts:
            count = len(parts_of(plan)[part].evaluators)
            if index < count:
                return f"{path_of_part(plan, part)}.evaluators[{index}]{inside}"
            index -= count
    if name.partition(".")[0] in _PART_FIELDS:
        return f"{path_of_part(plan, parts[0])}.{field}"
    return field


def _divides(interval: int, step: int) -> bool:
    return interval > 0 and step % interval == 0


def _together(plan: EvaluationPlan, due: Iterable[int]) -> list[tuple[int, ...]]:
    """Indices of parts by evaluation, each in order."""
    groups: dict[str, list[int]] = {}
    for part in due:
        groups.setdefault(settings_fingerprint(parts_of(plan)[part]), []).append(part)
    return [tuple(group) for group in groups.values()]
