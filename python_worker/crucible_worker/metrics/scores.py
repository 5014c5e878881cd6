"""Mean or sum of the scores of samples that may have several answers, with its standard error.

Scores x_ij of repeat j of sample i, an unscored one (None) not counted; N scored answers in C samples that have one, p
their mean. The standard error is that of `crucible_worker.metrics.accuracy`, clustered by sample:

    mean  p            sqrt(V),  V = C / (C - 1) * sum_i (sum_j (x_ij - p))^2 / N^2
    sum   p N          N sqrt(V)
"""

from __future__ import annotations

import enum
import itertools
import math
import operator
from collections.abc import Iterable, Sequence

from crucible_bridge.types import Metrics, SampleResult
from crucible_worker.metrics.accuracy import clustered_variance

__all__ = ["Reduce", "reduced", "reduced_keys", "scores_by_sample"]


class Reduce(enum.StrEnum):
    """How the scores are reduced."""

    MEAN = "mean"
    SUM = "sum"
    NONE = "none"


def scores_by_sample(results: Iterable[SampleResult]) -> Sequence[Sequence[float | None]]:
    """The scores of results that come in the data set's order, by sample; None if unscored."""
    by_sample = itertools.groupby(results, key=operator.attrgetter("sample_id"))
    return [[result.score if result.verdict.scored else None for result in repeats] for _, repeats in by_sample]


def reduced_keys(reduce: Reduce) -> tuple[str, ...]:
    """The keys that `reduced` yields: the value and its standard error; none if scores are not reduced."""
    return () if reduce is Reduce.NONE else (f"score_{reduce}", f"score_{reduce}_stderr")


def reduced(scores: Sequence[Sequence[float | None]], reduce: Reduce) -> Metrics:
    """Reduce the scores of a data set.

    Args:
        scores: for each sample, in the data set's order, the scores of its repeats; None if unscored.
        reduce: how; NONE leaves the scores to their readers, and gives no metric.

    Returns:
        `score_<reduce>` and `score_<reduce>_stderr`, in the unit of the scores. Both are undefined if nothing is
        scored, the standard error also if only one sample is.
    """
    if reduce is Reduce.NONE:
        return Metrics({})
    key, stderr = reduced_keys(reduce)
    clusters = [scored for sample in scores if (scored := [score for score in sample if score is not None])]
    if not clusters:
        return Metrics.all_undefined((key, stderr), "no sample was scored")
    total = math.fsum(score for cluster in clusters for score in cluster)
    counted = sum(map(len, clusters))
    variance = clustered_variance(clusters, total / counted, counted)
    value, scale = (total, counted) if reduce is Reduce.SUM else (total / counted, 1)
    if variance is None:
        return Metrics.of({key: value}, {stderr: "only one sample was scored"})
    return Metrics.of({key: value, stderr: scale * math.sqrt(variance)})
