"""Evaluations beside each other <-> v1."""

from __future__ import annotations

import math
from collections.abc import Iterable

from crucible_bridge.codec.evaluation import goal_from_v1, goal_to_v1
from crucible_bridge.codec.fields import at_least, child, made, several, unicode_text
from crucible_bridge.codec.results import (
    evaluation_from_v1,
    evaluation_to_v1,
    metrics_from_v1,
    metrics_to_v1,
    problem_from_v1,
    problem_to_v1,
)
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    CompareRequest,
    EvaluationComparison,
    MetricSeries,
    PairedComparison,
    RankBy,
    SampleChange,
    SeriesPoint,
)
from crucible_bridge.v1 import evaluation_pb2 as pb

__all__ = [
    "CONFIDENCE_BOUNDS",
    "DEFAULT_CONFIDENCE",
    "DEFAULT_LISTED",
    "MAX_LISTED",
    "compare_request_from_v1",
    "compare_request_to_v1",
    "evaluation_comparison_from_v1",
    "evaluation_comparison_to_v1",
]

MAX_LISTED, DEFAULT_LISTED = 1_000, 100
"""Improvements, and regressions, that are listed: at most, and where the request does not say."""
CONFIDENCE_BOUNDS, DEFAULT_CONFIDENCE = (0.5, 0.999), 0.95
"""Of intervals: what is accepted, and where the request does not say."""


def compare_request_to_v1(request: CompareRequest) -> pb.CompareEvaluationsRequest:
    """Encode what to compare.

    Raises:
        InvalidField: a value cannot be sent: wrong type, too wide, no Unicode.
    """
    rank_by = None
    if request.rank_by is not None:
        rank_by = made(pb.RankBy, "rank_by", metric=request.rank_by.metric, goal=goal_to_v1(request.rank_by.goal))
    return made(
        pb.CompareEvaluationsRequest,
        "",
        evaluation_ids=several(request.evaluation_ids, "evaluation_ids"),
        run_id=request.run_id,
        dataset_fingerprint=request.dataset_fingerprint,
        baseline_id=request.baseline_id,
        evaluator=request.evaluator,
        rank_by=rank_by,
        confidence=request.confidence,
        max_listed=request.max_listed,
    )


def compare_request_from_v1(message: pb.CompareEvaluationsRequest) -> CompareRequest:
    """Decode what to compare, and check its structure.

    Raises:
        InvalidField: neither or both of evaluation_ids and run_id are given, one id comes twice, or a number is out of
            range.
    """
    ids = tuple(message.evaluation_ids)
    run_id = message.run_id if message.HasField("run_id") else None
    if (run_id is None) == (not ids):
        raise InvalidField("evaluation_ids", "or run_id must be given, and not both")
    if len(ids) > MAX_COMPARED_EVALUATIONS:
        raise InvalidField("evaluation_ids", f"has {len(ids)} entries, at most {MAX_COMPARED_EVALUATIONS} are accepted")
    if message.dataset_fingerprint and run_id is None:
        raise InvalidField("dataset_fingerprint", "goes with run_id alone")
    seen: set[str] = set()
    for index, evaluation_id in enumerate(ids):
        if not evaluation_id or evaluation_id in seen:
            raise InvalidField(f"evaluation_ids[{index}]", "comes twice" if evaluation_id else "is empty")
        seen.add(evaluation_id)
    return CompareRequest(
        evaluation_ids=ids,
        run_id=run_id,
        dataset_fingerprint=message.dataset_fingerprint,
        baseline_id=message.baseline_id,
        evaluator=message.evaluator if message.HasField("evaluator") else None,
        rank_by=_rank_by_from_v1(message.rank_by, "rank_by") if message.HasField("rank_by") else None,
        confidence=_confidence(message.confidence) if message.HasField("confidence") else DEFAULT_CONFIDENCE,
        max_listed=_listed(message.max_listed) if message.HasField("max_listed") else DEFAULT_LISTED,
    )


def evaluation_comparison_to_v1(comparison: EvaluationComparison) -> pb.CompareEvaluationsResponse:
    """Encode the answer."""
    return pb.CompareEvaluationsResponse(
        evaluations=[evaluation_to_v1(evaluation) for evaluation in comparison.evaluations],
        comparisons=[_paired_to_v1(pair) for pair in comparison.comparisons],
        series=[
            pb.MetricSeries(
                key=unicode_text(series.key),
                points=[
                    pb.SeriesPoint(evaluation_id=point.evaluation_id, step=point.step, value=point.value)
                    for point in series.points
                ],
            )
            for series in comparison.series
        ],
        best_evaluation_id=comparison.best_evaluation_id,
    )


def evaluation_comparison_from_v1(message: pb.CompareEvaluationsResponse, field: str = "") -> EvaluationComparison:
    """Decode the answer: finite numbers.

    Raises:
        InvalidField: a number is not finite, or an evaluation is malformed.
    """
    return EvaluationComparison(
        evaluations=tuple(
            evaluation_from_v1(evaluation, f"{child(field, 'evaluations')}[{index}]")
            for index, evaluation in enumerate(message.evaluations)
        ),
        comparisons=tuple(
            _paired_from_v1(pair, f"{child(field, 'comparisons')}[{index}]")
            for index, pair in enumerate(message.comparisons)
        ),
        series=tuple(
            _series_from_v1(series, f"{child(field, 'series')}[{index}]") for index, series in enumerate(message.series)
        ),
        best_evaluation_id=message.best_evaluation_id,
    )


def _paired_to_v1(pair: PairedComparison) -> pb.PairedComparison:
    return pb.PairedComparison(
        baseline_id=pair.baseline_id,
        evaluation_id=pair.evaluation_id,
        evaluator=pair.evaluator,
        n_matched=pair.n_matched,
        n_baseline_only=pair.n_baseline_only,
        n_evaluation_only=pair.n_evaluation_only,
        n_improved=pair.n_improved,
        n_regressed=pair.n_regressed,
        metrics=metrics_to_v1(pair.metrics),
        interval_method=pair.interval_method,
        improvements=[_change_to_v1(change) for change in pair.improvements],
        regressions=[_change_to_v1(change) for change in pair.regressions],
        problem=problem_to_v1(pair.problem),
    )


def _paired_from_v1(message: pb.PairedComparison, field: str) -> PairedComparison:
    return PairedComparison(
        baseline_id=message.baseline_id,
        evaluation_id=message.evaluation_id,
        evaluator=message.evaluator,
        n_matched=message.n_matched,
        n_baseline_only=message.n_baseline_only,
        n_evaluation_only=message.n_evaluation_only,
        n_improved=message.n_improved,
        n_regressed=message.n_regressed,
        metrics=metrics_from_v1(message.metrics, child(field, "metrics")),
        interval_method=message.interval_method,
        improvements=_changes_from_v1(message.improvements, child(field, "improvements")),
        regressions=_changes_from_v1(message.regressions, child(field, "regressions")),
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
    )


def _change_to_v1(change: SampleChange) -> pb.SampleChange:
    return pb.SampleChange(
        sample_id=unicode_text(change.sample_id), baseline_score=change.baseline_score, score=change.score
    )


def _changes_from_v1(messages: Iterable[pb.SampleChange], field: str) -> tuple[SampleChange, ...]:
    return tuple(
        SampleChange(
            sample_id=message.sample_id,
            baseline_score=_finite(message.baseline_score, f"{field}[{index}].baseline_score"),
            score=_finite(message.score, f"{field}[{index}].score"),
        )
        for index, message in enumerate(messages)
    )


def _series_from_v1(message: pb.MetricSeries, field: str) -> MetricSeries:
    points = child(field, "points")
    return MetricSeries(
        key=message.key,
        points=tuple(
            SeriesPoint(
                evaluation_id=point.evaluation_id,
                step=point.step if point.HasField("step") else None,
                value=_finite(point.value, f"{points}[{index}].value"),
            )
            for index, point in enumerate(message.points)
        ),
    )


def _rank_by_from_v1(message: pb.RankBy, field: str) -> RankBy:
    if not message.metric:
        raise InvalidField(child(field, "metric"), "is empty")
    return RankBy(metric=message.metric, goal=goal_from_v1(message.goal, child(field, "goal")))


def _confidence(value: float) -> float:
    low, high = CONFIDENCE_BOUNDS
    if not low <= value <= high:
        raise InvalidField("confidence", f"is {value}, must be from {low} to {high}")
    return value


def _listed(value: int) -> int:
    at_least(value, 0, "max_listed")
    if value > MAX_LISTED:
        raise InvalidField("max_listed", f"is {value}, at most {MAX_LISTED} are listed")
    return value


def _finite(value: float, field: str) -> float:
    if not math.isfinite(value):
        raise InvalidField(field, f"is {value}, must be finite")
    return value
