"""Plans for the tests of plans."""

from __future__ import annotations

from typing import Any

from crucible_bridge.types import (
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    PlannedEvaluation,
    SamplingParams,
)
from tests.service.evaluation_kit import SHOUT, accuracy, nll

__all__ = ["plan", "planned"]


def planned(*evaluators: EvaluatorSpec, **fields: Any) -> PlannedEvaluation:
    """A part of a plan: two samples by these evaluators, by `nll` if none is given."""
    defaults = {"dataset": Dataset.of(SHOUT), "sampling": SamplingParams(max_tokens=8)}
    return PlannedEvaluation(evaluators=evaluators or (nll(),), **{**defaults, **fields})


def plan(**fields: Any) -> EvaluationPlan:
    """Plan `p`: `nll` at every third step and `accuracy` at every fourth, but for what is given."""
    defaults = {
        "plan_id": "p",
        "run_id": "run",
        "eval_every": 3,
        "evaluations": (planned(),),
        "infrequent_eval_every": 4,
        "infrequent_evaluations": (planned(accuracy()),),
    }
    return EvaluationPlan(**{**defaults, **fields})
