"""What is evaluated, and how often, while a run trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_bridge.types.data import Dataset
from crucible_bridge.types.models import SamplingParams
from crucible_bridge.types.requests import EvaluatorSpec, Limits

__all__ = ["EvaluationPlan", "PlannedEvaluation"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvaluation:
    """Evaluators of a plan that share a data set."""

    evaluators: tuple[EvaluatorSpec, ...]
    """With what."""
    dataset: Dataset
    """On what, as it is at each step."""
    sampling: SamplingParams | None = None
    """How to sample; required by evaluators that do (accuracy)."""
    limits: Limits = Limits()
    """Of each evaluation."""
    metric_prefix: str = ""
    """Put before every key, at most 200 bytes: "test/"."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Recorded with each evaluation, at most 64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """What is evaluated, and how often, while a run trains.

    At least one evaluation, and at most 64 evaluators together, of which no two may yield the same key.
    """

    plan_id: str
    """Identity, 1 to 160 bytes."""
    run_id: str
    """The orchestrator's run, 1 to 200 bytes; its evaluations bear it."""
    eval_every: int = 0
    """Steps between two times that `evaluations` are due: at every step that it divides, 0 included, and at the last
    one. 0 is at the last one alone."""
    evaluations: tuple[PlannedEvaluation, ...] = ()
    """Due often."""
    infrequent_eval_every: int = 0
    """Likewise, of `infrequent_evaluations`."""
    infrequent_evaluations: tuple[PlannedEvaluation, ...] = ()
    """Due seldom: long generations, large data sets."""
    correlation_id: str = ""
    """Handed through to every event of its evaluations, at most 200 bytes."""
