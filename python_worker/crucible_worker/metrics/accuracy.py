"""Accuracy with its uncertainty, from the scores of samples that may have several answers.

Scores x_ij in [0, 1] of repeat j of sample i; a partial answer counts by its score, an unscored one (None) is ignored.
N scored answers in C samples that have one, p their mean:

    accuracy         p = sum(x) / N
    accuracy_strict  sum(x) / (all answers): an unscored answer counts as wrong
    accuracy_stderr  sqrt(V),  V = C / (C - 1) * sum_i (sum_j (x_ij - p))^2 / N^2

V is the variance clustered by sample (Liang and Zeger, 1986; Miller, "Adding Error Bars to Evals", 2024), as repeats of
one sample are not independent. With one answer per sample it is the sample variance over N.

    accuracy_ci95_low, accuracy_ci95_high   Wilson's score interval (1927) at 95 % for p and n, where
    n = N                                   with one answer per sample,
    n = min(N, p (1 - p) / V)               else: the effective sample size of clustered binary data (Korn and Graubard,
                                            1998), C if p is 0 or 1, as V is then 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from crucible_bridge.types import Metrics

__all__ = ["ACCURACY_KEYS", "accuracy", "clustered_variance"]

ACCURACY_KEYS = ("accuracy", "accuracy_strict", "accuracy_stderr", "accuracy_ci95_low", "accuracy_ci95_high")
"""Every key, in the order of a report."""

_Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile


def accuracy(scores: Sequence[Sequence[float | None]]) -> Metrics:
    """Accuracy of a data set.

    Args:
        scores: for each sample, in the data set's order, the scores of its repeats in [0, 1]; None if unscored.

    Returns:
        The keys of `ACCURACY_KEYS`, fractions of 1. If nothing is scored, all except `accuracy_strict` are undefined;
        without any answer, that one too. `accuracy_stderr` is undefined if only one sample is scored.
    """
    clusters = [scored for sample in scores if (scored := [score for score in sample if score is not None])]
    answers = sum(map(len, scores))
    if not clusters:
        # `accuracy_strict` is a true 0 here, as every answer counts as wrong; it does not replace a missing number.
        strict = {"accuracy_strict": 0.0} if answers else {}
        return Metrics.of(strict, {key: "no sample was scored" for key in ACCURACY_KEYS if key not in strict})
    total = math.fsum(score for cluster in clusters for score in cluster)
    counted = sum(map(len, clusters))
    mean = total / counted
    variance = clustered_variance(clusters, mean, counted)
    low, high = _wilson(mean, _effective_size(clusters, mean, counted, variance))
    values = {"accuracy": mean, "accuracy_strict": total / answers}
    undefined = {}
    if variance is None:
        undefined["accuracy_stderr"] = "only one sample was scored"
    else:
        values["accuracy_stderr"] = math.sqrt(variance)
    values |= {"accuracy_ci95_low": low, "accuracy_ci95_high": high}
    return Metrics.of(values, undefined)


def clustered_variance(clusters: Sequence[Sequence[float]], mean: float, counted: int) -> float | None:
    """V of the module's description: the variance of a mean, clustered by sample.

    Args:
        clusters: for each sample that has one, the scores of its scored answers.
        mean: of all of them.
        counted: their number.

    Returns:
        V; None if there is only one sample, which has no spread.
    """
    if len(clusters) < 2:
        return None
    squares = math.fsum(math.fsum(score - mean for score in cluster) ** 2 for cluster in clusters)
    return len(clusters) / (len(clusters) - 1) * squares / counted**2


def _effective_size(clusters: Sequence[Sequence[float]], mean: float, counted: int, variance: float | None) -> float:
    if counted == len(clusters):
        return counted
    spread = mean * (1 - mean)
    if variance is None or spread <= 0:
        return len(clusters)
    return min(counted, spread / variance) if variance > 0 else counted


def _wilson(mean: float, size: float) -> tuple[float, float]:
    # The interval contains the mean and lies in [0, 1], except for rounding in the last bit.
    squared = _Z95 * _Z95
    centre = (mean + squared / (2 * size)) / (1 + squared / size)
    half = _Z95 / (1 + squared / size) * math.sqrt(max(0.0, mean * (1 - mean)) / size + squared / (4 * size * size))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))
