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
"""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np

from crucible_bridge.types import Metrics

__all__ = [
    "MAX_DISTINCT",
    "MAX_SCORE",
    "PAIRED_KEYS",
    "RESAMPLES",
    "PairedDifference",
    "mcnemar_p",
    "paired_difference",
]

PAIRED_KEYS = (
    "baseline_mean",
    "mean",
    "difference",
    "difference_stderr",
    "difference_ci_low",
    "difference_ci_high",
)
"""Every key except `mcnemar_p`, which only scores of 0 and 1 have."""

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
    """`PAIRED_KEYS`, and `mcnemar_p` for scores that are 0 or 1."""
    interval_method: str
    """"bonett_price", "bootstrap", "normal", or empty without an interval."""


def paired_difference(baseline: np.ndarray, other: np.ndarray, *, confidence: float) -> PairedDifference:
    """Compare the scores of the same samples.

    Args:
        baseline: float64, shape (samples,), finite.
        other: likewise, of the same samples in the same order.
        confidence: of the interval, above 0 and below 1.

    Returns:
        The numbers, in the scores' own unit. Without a sample, or with a score beyond `MAX_SCORE`, all are undefined;
        with one sample those of uncertainty, except the interval of scores that are 0 or 1.
    """
    n = baseline.size
    if not n:
        return _undefined("no sample has both scores")
    if max(np.abs(baseline).max(), np.abs(other).max()) > MAX_SCORE:
        return _undefined(f"a score is beyond {MAX_SCORE:g}")
    differences = other - baseline
    difference = math.fsum(differences) / n
    values = {
        "baseline_mean": math.fsum(baseline) / n,
        "mean": math.fsum(other) / n,
        "difference": difference,
    }
    undefined = {}
    stderr = None
    if n > 1:
        stderr = math.sqrt(math.fsum((differences - difference) ** 2) / (n - 1) / n)
        values["difference_stderr"] = stderr
    else:
        undefined["difference_stderr"] = "only one sample has both scores"
    if _binary(baseline) and _binary(other):
        gained, lost = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
        method, interval = "bonett_price", _bonett_price(gained, lost, n, confidence)
        values["mcnemar_p"] = mcnemar_p(gained, lost)
    elif stderr is None:
        method, interval = "", None
        undefined |= dict.fromkeys(PAIRED_KEYS[-2:], "only one sample has both scores")
    else:
        method, interval = _interval(differences, difference, stderr, confidence)
    if interval is not None:
        values["difference_ci_low"], values["difference_ci_high"] = interval
    return PairedDifference(metrics=Metrics.of(values, undefined), interval_method=method)


def _undefined(reason: str) -> PairedDifference:
    return PairedDifference(metrics=Metrics.all_undefined(PAIRED_KEYS, reason), interval_method="")


def mcnemar_p(gained: int, lost: int) -> float:
    """The probability of so uneven a split if gains and losses were equally likely: exact, two-sided."""
    total, fewer = gained + lost, min(gained, lost)
    if 2 * fewer >= total - 1:  # the two tails meet
        return 1.0
    drawn = np.arange(1, fewer + 1, dtype=np.float64)
    # log C(total, k) for k from 0 to `fewer`, as running sums of log((total - k + 1) / k).
    logs = np.concatenate(([0.0], np.cumsum(np.log((total - drawn + 1) / drawn)))) - total * math.log(2)
    return min(1.0, 2 * math.exp(logs[-1]) * math.fsum(np.exp(logs - logs[-1])))


def _binary(scores: np.ndarray) -> bool:
    return bool(np.all((scores == 0) | (scores == 1)))


def _quantile(confidence: float) -> float:
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def _bonett_price(gained: int, lost: int, n: int, confidence: float) -> tuple[float, float]:
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
