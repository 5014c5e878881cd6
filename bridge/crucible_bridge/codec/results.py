"""Results <-> v1: problems, metrics, results of samples and evaluators, evaluations."""

from crucible_bridge.codec.enums import state_to_v1, states_from_v1, verdict_from_v1, verdict_to_v1, verdicts_from_v1
from crucible_bridge.codec.generated import (
    evaluation_from_v1,
    evaluation_to_v1,
    evaluator_result_from_v1,
    evaluator_result_to_v1,
    sample_result_from_v1,
    sample_result_to_v1,
)
from crucible_bridge.codec.outcomes import fill_metrics, metrics_from_v1, metrics_to_v1, problem_from_v1, problem_to_v1

__all__ = [
    "evaluation_from_v1",
    "evaluation_to_v1",
    "evaluator_result_from_v1",
    "evaluator_result_to_v1",
    "fill_metrics",
    "metrics_from_v1",
    "metrics_to_v1",
    "problem_from_v1",
    "problem_to_v1",
    "sample_result_from_v1",
    "sample_result_to_v1",
    "state_to_v1",
    "states_from_v1",
    "verdict_from_v1",
    "verdict_to_v1",
    "verdicts_from_v1",
]
