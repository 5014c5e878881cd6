"""Evaluations beside each other."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.requests import Goal
from crucible_bridge.types.results import Evaluation, Metrics, Problem

__all__ = [
    "MAX_COMPARED_EVALUATIONS",
    "CompareRequest",
    "EvaluationComparison",
    "MetricSeries",
    "PairedComparison",
    "RankBy",
    "SampleChange",
    "SeriesPoint",
]


MAX_COMPARED_EVALUATIONS = 100
"""Evaluations of one comparison."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RankBy:
    """A metric, and which values of it are better."""

    metric: str
    """Its full key: "test/math/accuracy"."""
    goal: Goal
    """Which values are better."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Evaluations of one data set to compare: given by their ids, or all of a run that are completed."""

    evaluation_ids: tuple[str, ...] = ()
    """Which ones, each once, that have ended; either these or `run_id`."""
    run_id: str | None = None
    """In their place: all of this run that are completed, by step, those without one first."""
    dataset_fingerprint: str = ""
    """Only those of this data set; goes with `run_id` alone."""
    baseline_id: str = ""
    """Which of them the others are compared with; if empty, of each evaluator, the first that has it."""
    evaluator: str | None = None
    """Only the evaluator of this name, or of this kind where it has no name; all if None."""
    rank_by: RankBy | None = None
    """What tells the best of them."""
    confidence: float = 0.95
    """Of intervals, 0.5 to 0.999."""
    max_listed: int = 100
    """Samples listed as improvements, and as regressions, of each comparison: 0 to 1,000."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleChange:
    """A sample that two evaluations scored differently."""

    sample_id: str
    """The sample's id."""
    baseline_score: float
    """Its score in the baseline: the mean of its repeats."""
    score: float
    """Likewise in the other evaluation."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """An evaluator's scores in an evaluation beside those in the baseline, sample by sample.

    A sample's score is the mean of its repeats that have one; only samples with a score in both count.
    """

    baseline_id: str
    """The baseline."""
    evaluation_id: str
    """The evaluation compared with it."""
    evaluator: str
    """The evaluator's name, or its kind where it has none."""
    n_matched: int = 0
    """Samples with a score in both."""
    n_baseline_only: int = 0
    """Samples with a score in the baseline alone."""
    n_evaluation_only: int = 0
    """Samples with a score in the other evaluation alone."""
    n_improved: int = 0
    """Matched samples whose score is better than in the baseline; 0 where the evaluator has no goal."""
    n_regressed: int = 0
    """Those whose score is worse; likewise."""
    metrics: Metrics = Metrics({})
    """baseline_mean, mean, difference, difference_stderr, difference_ci_low, difference_ci_high; mcnemar_p."""
    interval_method: str = ""
    """"bonett_price", "bootstrap", "normal", or empty where there is no interval."""
    improvements: tuple[SampleChange, ...] = ()
    """The largest first."""
    regressions: tuple[SampleChange, ...] = ()
    """The largest first."""
    problem: Problem | None = None
    """Why there are no numbers: EVALUATORS_DIFFER, EVALUATOR_FAILED, DATASET_NOT_READ."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """One value of a series."""

    evaluation_id: str
    """Of which evaluation."""
    step: int | None = None
    """Its training step, where it has one."""
    value: float
    """The value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """A metric over evaluations."""

    key: str
    """Its full key."""
    points: tuple[SeriesPoint, ...]
    """One by evaluation that defines it, in their order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationComparison:
    """The answer to CompareEvaluations."""

    evaluations: tuple[Evaluation, ...]
    """What was compared, in the order asked for, or by step."""
    comparisons: tuple[PairedComparison, ...]
    """Evaluator by evaluator, in the order in which they come up: each evaluation that has it with the baseline."""
    series: tuple[MetricSeries, ...]
    """Every metric that one of them defines, in the order in which they come up."""
    best_evaluation_id: str = ""
    """The first of those with the best value of `rank_by`'s metric; empty where none defines it."""
