"""What is evaluated while a directory of checkpoints is followed: a plan, from shorter forms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict, Unpack

from crucible_bridge.client.given import DatasetLike, EvaluatorsLike
from crucible_bridge.client.requests import request_of
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.types import (
    EmbeddedModel,
    EvaluationPlan,
    Limits,
    PlannedEvaluation,
    Record,
    SamplingParams,
)

__all__ = ["PlannedFields", "as_given", "followed_run", "plan_of"]

_IN_PLAN = "plan.evaluations[0]."
"""Where a plan has the fields."""


class PlannedFields(TypedDict, total=False):
    """The fields of PlannedEvaluation, in the forms that `request_of` accepts."""

    evaluators: EvaluatorsLike
    dataset: DatasetLike
    sampling: SamplingParams | None
    limits: Limits
    metric_prefix: str
    labels: Mapping[str, str]
    record: Record
    models: Mapping[str, str]


def followed_run(directory: str | Path, plan: EvaluationPlan | str | None, run_id: str) -> str:
    """The run: the given one, that of the plan, or the name of the directory.

    Raises:
        InvalidField: the directory has no name.
    """
    if not run_id and isinstance(plan, EvaluationPlan):
        return plan.run_id
    name = run_id or Path(directory).name
    if not name or name == "..":
        raise InvalidField("run_id", f"is not given, and the directory {str(directory)!r} has no name")
    return name


def plan_of(run_id: str, plan: EvaluationPlan | str | None, **fields: Unpack[PlannedFields]) -> EvaluationPlan | None:
    """The plan to register; None if `plan` is the id of a registered one.

    Fields make a plan with one evaluation, of each checkpoint; its id is the run's.

    Raises:
        InvalidField: there are both plan and fields, or neither, or a field cannot be read.
    """
    if plan is not None:
        if fields:
            raise InvalidField("plan", f"and {', '.join(fields)} exclude each other")
        if not isinstance(plan, str | EvaluationPlan):
            raise InvalidField("plan", f"is a {type(plan).__name__}, neither an EvaluationPlan nor the id of one")
        return plan if isinstance(plan, EvaluationPlan) else None
    for name in ("evaluators", "dataset"):
        if name not in fields:
            raise InvalidField(name, "is needed if no plan is given")
    # A request has the same fields and short forms; its model stands for each checkpoint.
    request = request_of(None, model=EmbeddedModel("checkpoint"), **fields)
    planned = PlannedEvaluation(
        evaluators=request.evaluators,
        dataset=request.dataset,
        sampling=request.sampling,
        limits=request.limits,
        metric_prefix=request.metric_prefix,
        labels=request.labels,
        record=request.record,
        models=request.models,
    )
    return EvaluationPlan(plan_id=run_id, run_id=run_id, eval_every=1, evaluations=(planned,))


@contextlib.contextmanager
def as_given(fields: PlannedFields) -> Iterator[None]:
    """Name the fields in errors as they were given: not by their path in the plan that was made of them."""
    try:
        yield
    except BridgeError as error:
        if fields and error.field.startswith(_IN_PLAN):
            error.field = error.field.removeprefix(_IN_PLAN)
            error.args = (f"{error.field} {error.message}",)
        raise
