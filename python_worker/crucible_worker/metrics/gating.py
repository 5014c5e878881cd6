"""Whether a candidate's scores are worse than allowed: the drop of a metric, with its uncertainty, and a verdict.

x_i and y_i are the scores of sample i in the baseline and in the candidate, n samples. If higher is better, the drop of
a sample is x_i - y_i, else y_i - x_i; D is their mean. A number L is allowed, or a share r of the baseline's mean. The
excess of a sample is

    e_i = drop_i - L      or      e_i = drop_i - r s x_i,  s the sign of the baseline's mean,

so that their mean E is above 0 just if the drop is larger than allowed, and the uncertainty of the baseline's mean is
part of its error. Intervals have two sides, at the policy's confidence; a p-value is twice that of its side, so that it
fits them:

    p          min(1, 2 P[T > E / S]), T of Student's distribution, S the standard error of E; as in
               `crucible_worker.metrics.paired`, by clusters where there are some. Where every score is 0 or 1, the
               allowed drop is 0 and there are no clusters: min(1, 2 P[X >= lost]), X binomial of the changed samples
               and 1/2 (McNemar, 1947, exact)
    holm_p     p, corrected for the metrics of the policy (Holm, 1979)
    bounds     of D and of E: of scores that are 0 or 1, with L and without clusters, those of Bonett and Price (2012),
               else D +- t S, and E +- t S, of Student's distribution

    BLOCK          holm_p <= 1 - confidence
    PASS           D <= 0, or the upper bound of E is at most 0
    INCONCLUSIVE   else, and always with fewer than min_n samples

If no metric is worse than allowed, Holm's method rejects one of them with a probability of 1 - confidence or less, here
half of that: at 95 %, a policy blocks 2.5 % of such candidates or fewer, whatever its number of metrics. A PASS of all
metrics together needs no correction, as every one of them has to pass (Berger, "Multiparameter hypothesis testing and
acceptance sampling", 1982).
"""

from __future__ import annotations

import dataclasses
import enum
import math

import numpy as np

from crucible_worker.metrics.paired import binary, bonett_price, half_tail, mean_with_stderr
from crucible_worker.metrics.power import needed
from crucible_worker.metrics.student import t_quantile, t_tail

__all__ = ["AllowedDrop", "Drop", "GateFinding", "drop_of_values", "finding", "paired_drop"]

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
    if plain and allowed.drop == 0:
        tail = half_tail(better, worse + better)
    elif excess_stderr <= rounding:
        tail = 0.0 if excess > 0 else 1.0
    else:
        tail = t_tail(excess / excess_stderr, units - 1)
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
