"""Two evaluations of the same samples: the difference of their scores, and its uncertainty.

x_i and y_i are the scores of sample i in the baseline and in the other evaluation, d_i = y_i - x_i, n samples:

    baseline_mean, mean   sum(x) / n, sum(y) / n
    difference            D = sum(d) / n
    difference_stderr     sqrt(sum((d - D)^2) / (n - 1) / n)

A paired difference removes what both have in common, the difficulty of a sample: its error is usually far below that of
two separate accuracies (Miller, "Adding Error Bars to Evals", 2024). The interval, difference_ci_low and _high:

    bonett_price   every score is 0 or 1: with b samples gained, c lost, p = (b + 1) / (n + 2), q = (c + 1) / (n + 2),
                   p - q +- z sqrt((p + q - (p - q)^2) / (n + 2))       (Bonett and Price, 2012)
    bootstrap      else: percentiles of D over resamples of the differences (Efron, 1979), by a fixed seed
    normal         else, if there are too many distinct differences for that: D +- z difference_stderr

    mcnemar_p      every score is 0 or 1: min(1, 2 P[X <= min(b, c)]), X binomial of b + c and 1/2: the exact form
                   of McNemar's test (1947)
    p              mcnemar_p where it is defined; else 2 P[T > |D| / difference_stderr], T of Student's distribution
                   with n - 1 degrees of freedom
    mde_80, needed_n    see `crucible_worker.metrics.power`

Samples may come in clusters, such as the questions about one text. Of G clusters, s_g is the sum of d - D over one:

    difference_stderr   sqrt(G / (G - 1) sum(s_g^2)) / n     (Liang and Zeger, 1986; Miller, 2024)
    cluster_t           the interval D +- t difference_stderr, t of Student's distribution with G - 1 degrees of freedom
    p, mde_80, needed_n likewise, with G - 1 degrees of freedom; McNemar's test does not allow for clusters
    n_clusters          G
"""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np

from crucible_bridge.types import Metrics
from crucible_worker.metrics.power import detectable, detectable_split, needed, needed_split
from crucible_worker.metrics.student import t_quantile, t_tail

__all__ = [
    "CLUSTERS",
    "MAX_DISTINCT",
    "MAX_SCORE",
    "PAIRED_KEYS",
    "RESAMPLES",
    "PairedDifference",
    "binary",
    "bonett_price",
    "half_tail",
    "mcnemar_p",
    "mean_with_stderr",
    "paired_difference",
]

PAIRED_KEYS = (
    "baseline_mean",
    "mean",
    "difference",
    "difference_stderr",
    "difference_ci_low",
    "difference_ci_high",
    "p",
    "mde_80",
    "needed_n",
)
"""Every key except `mcnemar_p`, which only scores of 0 and 1 have, and `CLUSTERS`."""
CLUSTERS = "n_clusters"
"""The key that a comparison by clusters has as well."""

RESAMPLES = 2_000
"""Resamples of the bootstrap: they give the ends of a 95 % interval to about a twentieth of its width."""
MAX_DISTINCT = 5_000
"""Distinct differences up to which the bootstrap is used: with more, the mean is close enough to normal."""

MAX_SCORE = 1e150
"""Squares of larger scores overflow."""

_BLOCK = 2_000_000  # numbers drawn at once: 16 MB
_DRAWS_PER_COUNT = 12  # draws that take as long as one binomial count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The difference of two columns of scores."""

    metrics: Metrics
    """`PAIRED_KEYS`, and `mcnemar_p` for scores that are 0 or 1; with clusters `n_clusters` in its place."""
    interval_method: str
    """"bonett_price", "bootstrap", "normal", "cluster_t", or empty without an interval."""


def paired_difference(
    baseline: np.ndarray, other: np.ndarray, *, confidence: float, clusters: np.ndarray | None = None
) -> PairedDifference:
    """Compare the scores of the same samples.

    Args:
        baseline: float64, shape (samples,), finite.
        other: likewise, of the same samples in the same order.
        confidence: of the interval and of tests, above 0 and below 1.
        clusters: the number of each sample's cluster, from 0, int64, shape (samples,); None if there are none.

    Returns:
        The numbers, in the scores' own unit. Without a sample, or with a score beyond `MAX_SCORE`, all are undefined;
        with one sample, or one cluster, those of uncertainty, except the interval and the test of scores that are 0
        or 1 without clusters.
    """
    n = baseline.size
    if not n:
        return _undefined("no sample has both scores")
    if max(np.abs(baseline).max(), np.abs(other).max()) > MAX_SCORE:
        return _undefined(f"a score is beyond {MAX_SCORE:g}")
    differences = other - baseline
    difference, stderr, units = mean_with_stderr(differences, clusters)
    values = {"baseline_mean": math.fsum(baseline) / n, "mean": math.fsum(other) / n, "difference": difference}
    if clusters is not None:
        values[CLUSTERS] = float(units)
    one = "only one sample has both scores" if clusters is None else "all samples are of one cluster"
    undefined = {} if stderr is not None else dict.fromkeys(PAIRED_KEYS[3:], one)
    if stderr is not None:
        values["difference_stderr"] = stderr
    method = ""
    if clusters is None and binary(baseline) and binary(other):
        method, found, missing = _of_shares(differences, confidence)
    elif stderr is not None:
        method, found, missing = _of_means(differences, difference, stderr, units, confidence, clusters)
    else:
        found, missing = {}, {}
    values |= found
    undefined = {key: why for key, why in (undefined | missing).items() if key not in values}
    return PairedDifference(metrics=Metrics.of(values, undefined), interval_method=method)


def mean_with_stderr(numbers: np.ndarray, clusters: np.ndarray | None) -> tuple[float, float | None, int]:
    """The mean, its standard error, and the units it was made from: samples, or clusters of them.

    Args:
        numbers: float64, shape (samples,), at least one.
        clusters: as for `paired_difference`.

    Returns:
        The three; None in place of the standard error of a single unit.
    """
    n = numbers.size
    mean = math.fsum(numbers) / n
    apart = numbers - mean
    if clusters is not None:
        counts = np.bincount(clusters)
        apart = np.bincount(clusters, weights=apart)[counts > 0]
    units = apart.size
    if units < 2:
        return mean, None, units
    return mean, math.sqrt(units / (units - 1) * math.fsum(apart**2)) / n, units


def _of_shares(differences: np.ndarray, confidence: float) -> tuple[str, dict[str, float], dict[str, str]]:
    """Method, numbers and what is missing, of scores that are 0 or 1."""
    n = differences.size
    gained, lost = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    low, high = bonett_price(gained, lost, n, confidence)
    chance = mcnemar_p(gained, lost)
    values = {"difference_ci_low": low, "difference_ci_high": high, "mcnemar_p": chance, "p": chance}
    smallest = detectable_split(gained + lost, n, confidence)
    missing = {"mde_80": f"only {gained + lost:,} scores changed", "needed_n": "the difference is 0"}
    return "bonett_price", values | _given(mde_80=smallest, needed_n=needed_split(gained, lost, n, confidence)), missing


def _of_means(
    differences: np.ndarray,
    difference: float,
    stderr: float,
    units: int,
    confidence: float,
    clusters: np.ndarray | None,
) -> tuple[str, dict[str, float], dict[str, str]]:
    """Likewise of any other scores, or of clusters."""
    if clusters is None:
        method, (low, high) = _interval(differences, difference, stderr, confidence)
    else:
        half = t_quantile((1 + confidence) / 2, units - 1) * stderr
        method, (low, high) = "cluster_t", (difference - half, difference + half)
    chance = float(difference == 0)  # without any spread
    if stderr > 0:
        chance = 2 * t_tail(abs(difference) / stderr, units - 1)
    wanted = needed(difference, stderr, units, confidence)
    values = {
        "difference_ci_low": low,
        "difference_ci_high": high,
        "p": chance,
        "mde_80": detectable(stderr, units, confidence),
    }
    # Clusters of this size: so many samples belong to as many clusters as are needed.
    samples = None if wanted is None else math.ceil(wanted * differences.size / units)
    return method, values | _given(needed_n=samples), {"needed_n": "the difference is 0"}


def _given(**values: float | None) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if value is not None}


def _undefined(reason: str) -> PairedDifference:
    return PairedDifference(metrics=Metrics.all_undefined(PAIRED_KEYS, reason), interval_method="")


def mcnemar_p(gained: int, lost: int) -> float:
    """The probability of so uneven a split if gains and losses were equally likely: exact, two-sided."""
    total, fewer = gained + lost, min(gained, lost)
    if 2 * fewer >= total - 1:  # the two tails meet
        return 1.0
    return min(1.0, 2 * half_tail(fewer, total))


def half_tail(most: int, total: int) -> float:
    """P[X <= most], X binomial of `total` and 1/2: exact up to rounding."""
    drawn = np.arange(1, most + 1, dtype=np.float64)
    # log C(total, k) for k from 0 to `most`, as running sums of log((total - k + 1) / k).
    logs = np.concatenate(([0.0], np.cumsum(np.log((total - drawn + 1) / drawn)))) - total * math.log(2)
    largest = float(logs.max())
    return min(1.0, math.exp(largest) * math.fsum(np.exp(logs - largest)))


def binary(scores: np.ndarray) -> bool:
    """Whether every score is 0 or 1."""
    return bool(np.all((scores == 0) | (scores == 1)))


def _quantile(confidence: float) -> float:
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def bonett_price(gained: int, lost: int, n: int, confidence: float) -> tuple[float, float]:
    """The interval of the difference of two paired shares: gained - lost, as a fraction of n."""
    p, q = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = _quantile(confidence) * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    return max(-1.0, p - q - half), min(1.0, p - q + half)


def _interval(
    differences: np.ndarray, difference: float, stderr: float, confidence: float
) -> tuple[str, tuple[float, float]]:
    sizes, counts = np.unique(differences, return_counts=True)
    if sizes.size > MAX_DISTINCT:
        half = _quantile(confidence) * stderr
        return "normal", (difference - half, difference + half)
    resamples = _resamples(differences, sizes, counts)
    low, high = np.quantile(resamples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return "bootstrap", (float(low), float(high))


def _resamples(differences: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means of resamples, shape (RESAMPLES,)."""
    random, n = np.random.default_rng(0), differences.size
    # With few distinct sizes, drawing how often each occurs is faster than n draws.
    counted = n > _DRAWS_PER_COUNT * sizes.size
    means: list[np.ndarray] = []
    at_once = max(1, _BLOCK // (sizes.size if counted else n))
    for start in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - start)
        if counted:
            means.append(random.multinomial(n, counts / n, size=count) @ sizes / n)
        else:
            means.append(differences[random.integers(n, size=(count, n), dtype=np.int32)].mean(axis=1))
    return np.concatenate(means)
