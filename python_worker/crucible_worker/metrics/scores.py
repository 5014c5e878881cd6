"""Metrics of the scores of samples, each with its standard error: mean, sum, accuracy, accuracy of next tokens.

Samples may have several answers. For the mean and the sum: scores x_ij of repeat j of sample i, an unscored one (None)
not counted; N scored answers in C samples that have one, p their mean. The standard error is clustered by sample, as
that of the accuracy below:

    mean  p            sqrt(V),  V = C / (C - 1) * sum_i (sum_j (x_ij - p))^2 / N^2
    sum   p N          N sqrt(V)
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import operator
from collections.abc import Iterable, Sequence

from crucible_bridge.types import Metrics, SampleResult

__all__ = [
    "ACCURACY_KEYS",
    "TOKEN_ACCURACY_KEYS",
    "Reduce",
    "TokenHits",
    "accuracy",
    "clustered_variance",
    "reduced",
    "reduced_keys",
    "scores_by_sample",
    "token_accuracy",
]

# Accuracy with its uncertainty, from the scores of samples that may have several answers.
#
# Scores x_ij in [0, 1] of repeat j of sample i; a partial answer counts by its score, an unscored one (None) is
# ignored. N scored answers in C samples that have one, p their mean:
#
#     accuracy         p = sum(x) / N
#     accuracy_strict  sum(x) / (all answers): an unscored answer counts as wrong
#     accuracy_stderr  sqrt(V),  V = C / (C - 1) * sum_i (sum_j (x_ij - p))^2 / N^2
#
# V is the variance clustered by sample (Liang and Zeger, 1986; Miller, "Adding Error Bars to Evals", 2024), as repeats
# of one sample are not independent. With one answer per sample it is the sample variance over N.
#
#     accuracy_ci95_low, accuracy_ci95_high   Wilson's score interval (1927) at 95 % for p and n, where
#     n = N                                   with one answer per sample,
#     n = min(N, p (1 - p) / V)               else: the effective sample size of clustered binary data (Korn and
#                                             Graubard, 1998), C if p is 0 or 1, as V is then 0.

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


# How often a model's likeliest token is the next token, over the tokens of many samples.
#
# r_i of the n_i tokens of sample i are right; N is the sum of n_i over the C samples that have tokens:
#
#     next_token_accuracy         p = sum(r_i) / N
#     next_token_accuracy_stderr  sqrt(C / (C - 1) * sum((r_i - p n_i)^2) / N^2), clustered by sample, as tokens of one
#                                 are not independent
#     sample_accuracy             share of the C samples that are right as a whole

_ACCURACY, _STDERR, _SAMPLES = "next_token_accuracy", "next_token_accuracy_stderr", "sample_accuracy"

TOKEN_ACCURACY_KEYS = (_ACCURACY, _STDERR, _SAMPLES)
"""Every key, in the order of a report."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenHits:
    """The counts of one sample."""

    tokens: int
    """Tokens that are measured."""
    right: int
    """Those that the model considers the likeliest."""
    whole: bool
    """Whether the sample as a whole is right."""


def token_accuracy(hits: Sequence[TokenHits]) -> Metrics:
    """Accuracy by token and by sample.

    Args:
        hits: of each sample that was measured.

    Returns:
        The keys of `TOKEN_ACCURACY_KEYS`, fractions of 1; undefined if no token was measured, the standard error
        also if only one sample was measured.
    """
    measured = [each for each in hits if each.tokens]
    if not measured:
        return Metrics.all_undefined(TOKEN_ACCURACY_KEYS, "no token has weight" if hits else "no sample was scored")
    tokens = sum(each.tokens for each in measured)
    share = sum(each.right for each in measured) / tokens
    whole = sum(each.whole for each in measured) / len(measured)
    if len(measured) == 1:
        return Metrics.of({_ACCURACY: share, _SAMPLES: whole}, {_STDERR: "only one sample was scored"})
    squares = math.fsum((each.right - share * each.tokens) ** 2 for each in measured)
    error = math.sqrt(len(measured) / (len(measured) - 1) * squares) / tokens
    return Metrics.of({_ACCURACY: share, _STDERR: error, _SAMPLES: whole})


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
