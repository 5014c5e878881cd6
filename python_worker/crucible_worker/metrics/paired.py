"""Two evaluations of the same samples: the difference of their scores, its uncertainty, and whether it is allowed.

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
    mde_80, needed_n    see `crucible_worker.metrics.significance`

Samples may come in clusters, such as the questions about one text. Of G clusters, s_g is the sum of d - D over one:

    difference_stderr   sqrt(G / (G - 1) sum(s_g^2)) / n     (Liang and Zeger, 1986; Miller, 2024)
    cluster_t           the interval D +- t difference_stderr, t of Student's distribution with G - 1 degrees of freedom
    p, mde_80, needed_n likewise, with G - 1 degrees of freedom; McNemar's test does not allow for clusters
    n_clusters          G
"""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics

import numpy as np

from crucible_bridge.types import Metrics
from crucible_worker.metrics.significance import detectable, detectable_split, needed, needed_split, t_quantile, t_tail

__all__ = [
    "CLUSTERS",
    "MAX_DISTINCT",
    "MAX_SCORE",
    "PAIRED_KEYS",
    "RESAMPLES",
    "AllowedDrop",
    "Drop",
    "GateFinding",
    "PairedDifference",
    "binary",
    "bonett_price",
    "drop_of_values",
    "finding",
    "half_tail",
    "mcnemar_p",
    "mean_with_stderr",
    "paired_difference",
    "paired_drop",
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


# Whether a candidate's scores are worse than allowed: the drop of a metric, with its uncertainty, and a verdict.
#
# x_i and y_i are the scores of sample i in the baseline and in the candidate, n samples. If higher is better, the drop
# of a sample is x_i - y_i, else y_i - x_i; D is their mean. A number L is allowed, or a share r of the baseline's mean.
# The excess of a sample is
#
#     e_i = drop_i - L      or      e_i = drop_i - r s x_i,  s the sign of the baseline's mean,
#
# so that their mean E is above 0 just if the drop is larger than allowed, and the uncertainty of the baseline's mean is
# part of its error. Intervals have two sides, at the policy's confidence; a p-value is twice that of its side, so that
# it fits them:
#
#     p          min(1, 2 P[T > E / S]), T of Student's distribution, S the standard error of E; as
#                above, by clusters where there are some. Where every score is 0 or 1, and there are no clusters, the
#                allowed drop 0 has min(1, 2 P[X >= lost]), X binomial of the changed samples and 1/2 (McNemar, 1947,
#                exact), and a larger one has the larger of the two, so that p never falls with the allowance
#     holm_p     p, corrected for the metrics of the policy (Holm, 1979)
#     bounds     of D and of E: of scores that are 0 or 1, with L and without clusters, those of Bonett and Price
#                (2012), else D +- t S, and E +- t S, of Student's distribution
#
#     BLOCK          holm_p <= 1 - confidence
#     PASS           D <= 0, or the upper bound of E is at most 0
#     INCONCLUSIVE   else, and always with fewer than min_n samples
#
# If no metric is worse than allowed, Holm's method rejects one of them with a probability of 1 - confidence or less,
# here half of that: at 95 %, a policy blocks 2.5 % of such candidates or fewer, whatever its number of metrics. A PASS
# of all metrics together needs no correction, as every one of them has to pass (Berger, "Multiparameter hypothesis
# testing and acceptance sampling", 1982).

_ROUNDING = 1e-12
"""Excesses of this share of the scores are what rounding leaves of an excess of 0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AllowedDrop:
    """What a metric may lose."""

    drop: float
    """At least 0."""
    relative: bool = False
    """Whether it is a share of the baseline's value."""
    lower_is_better: bool = False
    """Which way the metric is better."""

    def limit(self, baseline: float) -> float:
        """The largest drop, in the metric's unit."""
        return self.drop * abs(baseline) if self.relative else self.drop

    def drops(self, baseline: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """The drop of each sample, shape (samples,)."""
        return candidate - baseline if self.lower_is_better else baseline - candidate


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A metric of a candidate next to that of the baseline."""

    baseline: float
    """The baseline's value."""
    candidate: float
    """The candidate's."""
    drop: float
    """By how much the candidate is worse; negative if it is better."""
    limit: float
    """How much is allowed, in the metric's unit."""
    n: int
    """Samples."""
    clusters: int | None = None
    """Clusters of them; None if there are none."""
    low: float | None = None
    """Lower end of the drop's interval; None without an interval."""
    high: float | None = None
    """Its upper end."""
    excess_high: float | None = None
    """Upper end of the interval of the drop beyond what is allowed."""
    chance: float | None = None
    """p of the drop being no larger than allowed; None without an interval."""
    needed: float | None = None
    """Samples with which this drop would be told from what is allowed with a probability of 80 %."""


class GateFinding(enum.Enum):
    """What a metric amounts to, before its tier counts."""

    PASS = enum.auto()
    FAIL = enum.auto()
    OPEN = enum.auto()


def paired_drop(
    baseline: np.ndarray,
    candidate: np.ndarray,
    allowed: AllowedDrop,
    *,
    confidence: float,
    clusters: np.ndarray | None = None,
) -> Drop:
    """The drop of the mean score of the same samples.

    Args:
        baseline: float64, shape (samples,), finite, below `paired.MAX_SCORE`; at least one sample.
        candidate: likewise, of the same samples in the same order.
        allowed: how much worse the candidate may be.
        confidence: of the intervals, above 0 and below 1.
        clusters: the number of each sample's cluster, from 0, int64, shape (samples,); None if there are none.
    """
    n = baseline.size
    means = math.fsum(baseline) / n, math.fsum(candidate) / n
    drops = allowed.drops(baseline, candidate)
    offsets = allowed.drop * math.copysign(1.0, means[0]) * baseline if allowed.relative else allowed.drop
    drop, stderr, units = mean_with_stderr(drops, clusters)
    excess, excess_stderr, _ = mean_with_stderr(drops - offsets, clusters)
    found = Drop(
        baseline=means[0],
        candidate=means[1],
        drop=drop,
        limit=allowed.limit(means[0]),
        n=n,
        clusters=None if clusters is None else units,
    )
    if stderr is None or excess_stderr is None:
        return found
    rounding = _ROUNDING * float(max(np.abs(baseline).max(), np.abs(candidate).max(), allowed.drop))
    excess = 0.0 if abs(excess) <= rounding else excess
    quantile = t_quantile((1 + confidence) / 2, units - 1)
    low, high = drop - quantile * stderr, drop + quantile * stderr
    excess_high = excess + quantile * excess_stderr
    plain = clusters is None and binary(baseline) and binary(candidate)
    worse, better = int(np.count_nonzero(drops > 0)), int(np.count_nonzero(drops < 0))
    if plain and not allowed.relative:
        low, high = bonett_price(worse, better, n, confidence)
        excess_high = high - allowed.drop
    certain = excess_stderr <= rounding
    tail = float(excess <= 0) if certain else t_tail(excess / excess_stderr, units - 1)
    if plain:
        unallowed = half_tail(better, worse + better)
        tail = unallowed if allowed.drop == 0 else max(tail, unallowed)
    wanted = needed(excess, excess_stderr, units, confidence)
    return dataclasses.replace(
        found,
        low=low,
        high=high,
        excess_high=0.0 if abs(excess_high) <= rounding else excess_high,
        chance=min(1.0, 2 * tail),
        needed=None if wanted is None else float(math.ceil(wanted * n / units)),
    )


def drop_of_values(baseline: float, candidate: float, n: int, allowed: AllowedDrop) -> Drop:
    """The drop of a metric of which only its values are known."""
    drop = candidate - baseline if allowed.lower_is_better else baseline - candidate
    return Drop(baseline=baseline, candidate=candidate, drop=drop, limit=allowed.limit(baseline), n=n)


def finding(drop: Drop, *, paired: bool, min_n: int, corrected: float | None, alpha: float) -> GateFinding:
    """What a metric amounts to.

    Args:
        drop: of the metric.
        paired: whether it is of scores of samples; if not, only its values are known.
        min_n: samples that it needs.
        corrected: its `chance` after Holm's correction; None if it has none.
        alpha: 1 - confidence.
    """
    if drop.n < min_n:
        return GateFinding.OPEN
    if not paired:
        rounding = _ROUNDING * max(abs(drop.baseline), abs(drop.candidate))
        return GateFinding.FAIL if drop.drop - drop.limit > rounding else GateFinding.PASS
    if corrected is None or drop.excess_high is None:  # one sample, or one cluster
        return GateFinding.OPEN
    if corrected <= alpha:
        return GateFinding.FAIL
    return GateFinding.PASS if drop.drop <= 0 or drop.excess_high <= 0 else GateFinding.OPEN
