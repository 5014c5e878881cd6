"""What was found <-> v1: problems, metrics, results of samples and evaluators, evaluations.

Text in results can come from models: what UTF-8 cannot carry becomes U+FFFD, so that encoding never fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from crucible_bridge.codec.evaluation import (
    evaluate_request_from_v1,
    evaluate_request_to_v1,
    evaluator_spec_from_v1,
    evaluator_spec_to_v1,
)
from crucible_bridge.codec.fields import EnumPair, child, entry, unicode_text
from crucible_bridge.codec.rollouts import trajectory_group_from_v1, trajectory_group_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    Metrics,
    Problem,
    SampleResult,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2

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

_STATE = EnumPair(EvaluationState, evaluation_pb2.EvaluationState, "EVALUATION_STATE_")
_VERDICT = EnumPair(Verdict, types_pb2.Verdict, "VERDICT_")

state_to_v1 = _STATE.to_v1
states_from_v1 = _STATE.all_from_v1
verdict_to_v1 = _VERDICT.to_v1
verdict_from_v1 = _VERDICT.from_v1
verdicts_from_v1 = _VERDICT.all_from_v1


def problem_to_v1(problem: Problem | None) -> types_pb2.Problem | None:
    """Encode what went wrong, if anything did."""
    if problem is None:
        return None
    return types_pb2.Problem(
        reason=problem.reason,
        message=unicode_text(problem.message),
        field=unicode_text(problem.field),
        retryable=problem.retryable,
    )


def problem_from_v1(message: types_pb2.Problem) -> Problem:
    """Decode what went wrong; ask `HasField` before."""
    return Problem(reason=message.reason, message=message.message, field=message.field, retryable=message.retryable)


def metrics_to_v1(metrics: Metrics) -> types_pb2.Metrics:
    """Encode metrics. As part of another message it is copied, which takes long if it is large: see `fill_metrics`."""
    message = types_pb2.Metrics()
    fill_metrics(message, metrics)
    return message


def fill_metrics(message: types_pb2.Metrics, metrics: Metrics) -> None:
    """Encode metrics in place: protobuf copies a map in its own order, which costs quadratic time."""
    message.values.update({unicode_text(key): value for key, value in metrics.values.items()})
    message.undefined.update({unicode_text(key): unicode_text(reason) for key, reason in metrics.undefined.items()})


def metrics_from_v1(message: types_pb2.Metrics, field: str) -> Metrics:
    """Decode metrics: finite values, keys in order of the alphabet."""
    return Metrics(_finite(message.values, child(field, "values")), dict(sorted(message.undefined.items())))


def sample_result_to_v1(result: SampleResult) -> evaluation_pb2.SampleResult:
    """Encode what became of one sample."""
    return evaluation_pb2.SampleResult(
        evaluator=result.evaluator,
        sample_id=unicode_text(result.sample_id),
        repeat=result.repeat,
        verdict=_VERDICT.to_v1(result.verdict),
        score=result.score,
        output=unicode_text(result.output),
        extracted=unicode_text(result.extracted),
        method=unicode_text(result.method),
        stop_reason=result.stop_reason,
        output_tokens=result.output_tokens,
        duration_ns=result.duration_ns,
        attempts=result.attempts,
        problem=problem_to_v1(result.problem),
        measurements=dict(result.measurements),
        group=None if result.group is None else trajectory_group_to_v1(result.group),
    )


def sample_result_from_v1(message: evaluation_pb2.SampleResult, field: str) -> SampleResult:
    """Decode what became of one sample: a verdict, finite numbers."""
    score = message.score if message.HasField("score") else None
    if score is not None and not math.isfinite(score):
        raise InvalidField(child(field, "score"), f"is {score}, must be finite")
    return SampleResult(
        evaluator=message.evaluator,
        sample_id=message.sample_id,
        repeat=message.repeat,
        verdict=_VERDICT.from_v1(message.verdict, child(field, "verdict")),
        score=score,
        output=message.output,
        extracted=message.extracted,
        method=message.method,
        stop_reason=message.stop_reason,
        output_tokens=message.output_tokens,
        duration_ns=message.duration_ns,
        attempts=message.attempts,
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
        measurements=_finite(message.measurements, child(field, "measurements")),
        group=trajectory_group_from_v1(message.group, child(field, "group")) if message.HasField("group") else None,
    )


def evaluator_result_to_v1(result: EvaluatorResult) -> evaluation_pb2.EvaluatorResult:
    """Encode the result of one evaluator."""
    return evaluation_pb2.EvaluatorResult(
        evaluator=evaluator_spec_to_v1(result.evaluator),
        metrics=metrics_to_v1(result.metrics),
        n=result.n,
        n_scored=result.n_scored,
        n_unscored=result.n_unscored,
        n_errors=result.n_errors,
        n_truncated=result.n_truncated,
        problem=problem_to_v1(result.problem),
    )


def evaluator_result_from_v1(message: evaluation_pb2.EvaluatorResult, field: str) -> EvaluatorResult:
    """Decode the result of one evaluator."""
    return EvaluatorResult(
        evaluator=evaluator_spec_from_v1(message.evaluator, child(field, "evaluator")),
        metrics=metrics_from_v1(message.metrics, child(field, "metrics")),
        n=message.n,
        n_scored=message.n_scored,
        n_unscored=message.n_unscored,
        n_errors=message.n_errors,
        n_truncated=message.n_truncated,
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
    )


def evaluation_to_v1(evaluation: Evaluation) -> evaluation_pb2.Evaluation:
    """Encode an evaluation as it stands."""
    return evaluation_pb2.Evaluation(
        evaluation_id=evaluation.evaluation_id,
        state=_STATE.to_v1(evaluation.state),
        request=evaluate_request_to_v1(evaluation.request, "request"),
        metrics=metrics_to_v1(evaluation.metrics),
        results=[evaluator_result_to_v1(result) for result in evaluation.results],
        done=evaluation.done,
        total=evaluation.total,
        dataset_fingerprint=evaluation.dataset_fingerprint,
        model_fingerprint=evaluation.model_fingerprint,
        created_unix_ns=evaluation.created_unix_ns,
        ended_unix_ns=evaluation.ended_unix_ns,
        duration_ns=evaluation.duration_ns,
        attempt=evaluation.attempt,
        last_sequence=evaluation.last_sequence,
        problem=problem_to_v1(evaluation.problem),
    )


def evaluation_from_v1(message: evaluation_pb2.Evaluation, field: str) -> Evaluation:
    """Decode an evaluation as it stands."""
    results = child(field, "results")
    return Evaluation(
        evaluation_id=message.evaluation_id,
        state=_STATE.from_v1(message.state, child(field, "state")),
        request=evaluate_request_from_v1(message.request, child(field, "request")),
        metrics=metrics_from_v1(message.metrics, child(field, "metrics")),
        results=tuple(
            evaluator_result_from_v1(result, f"{results}[{index}]") for index, result in enumerate(message.results)
        ),
        done=message.done,
        total=message.total,
        dataset_fingerprint=message.dataset_fingerprint,
        model_fingerprint=message.model_fingerprint,
        created_unix_ns=message.created_unix_ns,
        ended_unix_ns=message.ended_unix_ns,
        duration_ns=message.duration_ns,
        attempt=message.attempt,
        last_sequence=message.last_sequence,
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
    )


def _finite(values: Mapping[str, float], field: str) -> dict[str, float]:
    numbers = dict(sorted(values.items()))
    for key, value in numbers.items():
        if not math.isfinite(value):
            raise InvalidField(entry(field, key), f"is {value}, must be finite")
    return numbers
