"""Comparisons on the wire: what was encoded comes back equal, and what is malformed names its field."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge.codec.comparisons import (
    compare_request_from_v1,
    compare_request_to_v1,
    evaluation_comparison_from_v1,
    evaluation_comparison_to_v1,
)
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    CompareRequest,
    EvaluationComparison,
    Goal,
    MetricSeries,
    PairedComparison,
    RankBy,
    SampleChange,
    SeriesPoint,
)
from crucible_bridge.v1 import evaluation_pb2
from tests.unit.bridge import strategies as some

rankings = st.builds(RankBy, metric=some.name, goal=st.sampled_from(Goal))
settings_of_both = {
    "baseline_id": some.text,
    "evaluator": some.optional(some.text),
    "rank_by": some.optional(rankings),
    "confidence": st.floats(0.5, 0.999),
    "max_listed": st.integers(0, 1_000),
}
requests = st.builds(
    CompareRequest,
    evaluation_ids=st.lists(some.name, min_size=1, max_size=3, unique=True).map(tuple),
    **settings_of_both,
) | st.builds(CompareRequest, run_id=some.text, dataset_fingerprint=some.text, **settings_of_both)
changes = st.builds(SampleChange, sample_id=some.text, baseline_score=some.finite, score=some.finite)
pairs = st.builds(
    PairedComparison,
    baseline_id=some.text,
    evaluation_id=some.text,
    evaluator=some.text,
    n_matched=some.positive,
    n_baseline_only=some.positive,
    n_evaluation_only=some.positive,
    n_improved=some.positive,
    n_regressed=some.positive,
    metrics=some.metrics,
    interval_method=some.text,
    improvements=some.several(changes),
    regressions=some.several(changes),
    problem=some.optional(some.problems),
)
points = st.builds(SeriesPoint, evaluation_id=some.text, step=some.optional(some.positive), value=some.finite)
comparisons = st.builds(
    EvaluationComparison,
    evaluations=some.several(some.evaluations),
    comparisons=some.several(pairs),
    series=some.several(st.builds(MetricSeries, key=some.text, points=some.several(points))),
    best_evaluation_id=some.text,
)


@given(requests)
def test_requests_come_back_equal(request: CompareRequest) -> None:
    """What a client asks for is what the worker reads."""
    message = evaluation_pb2.CompareEvaluationsRequest.FromString(compare_request_to_v1(request).SerializeToString())
    assert compare_request_from_v1(message) == request


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(comparisons)
def test_answers_come_back_equal(comparison: EvaluationComparison) -> None:
    """What the worker found is what a client reads."""
    data = evaluation_comparison_to_v1(comparison).SerializeToString()
    back = evaluation_comparison_from_v1(evaluation_pb2.CompareEvaluationsResponse.FromString(data))
    assert some.plain(back) == some.plain(comparison)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"comparisons": [{"improvements": [{"score": float("nan")}]}]}, "comparisons[0].improvements[0].score"),
        ({"comparisons": [{"regressions": [{"baseline_score": float("inf")}]}]}, "regressions[0].baseline_score"),
        ({"series": [{"points": [{"value": float("nan")}]}]}, "series[0].points[0].value"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(message, field):
    """A client never hands on a number that is none."""
    with pytest.raises(InvalidField) as refused:
        evaluation_comparison_from_v1(evaluation_pb2.CompareEvaluationsResponse(**message))
    assert refused.value.field.endswith(field)
