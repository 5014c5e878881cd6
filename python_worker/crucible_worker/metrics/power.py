"""What a test of a paired difference can see: the smallest difference it detects, and the samples it needs.

A test detects a true difference with a probability, its power; here 80 %. Both sides of a two-sided test at a
confidence c count: a = (1 + c) / 2. With the standard error S of a difference D over u units (samples, or clusters of
them), by quantiles t of Student's distribution with u - 1 degrees of freedom (Cohen, 1988):

    mde_80      (t_a + t_0.8) S
    needed      the least u' with (t_a + t_0.8) S sqrt(u / u') <= |D|

Where every score is 0 or 1 and m of n samples changed, the test is McNemar's. By quantiles z of the normal distribution
(Connor, "Sample size for testing differences in proportions for the paired-sample design", 1987), and with a whole
sample more, as the exact test needs that on average:

    mde_80      the least d with n d >= 1 + z_a sqrt(m) + z_0.8 sqrt(m - n d^2)
    needed_n    the least n' with n' |D| >= 1 + z_a sqrt(n' m / n) + z_0.8 sqrt(n' (m / n - D^2))

The second one is a quadratic in sqrt(n').
"""

from __future__ import annotations

import math
import statistics

from crucible_worker.metrics.student import t_quantile

__all__ = ["POWER", "detectable", "detectable_split", "needed", "needed_split"]

POWER = 0.8
"""The probability of detection."""

_HALVINGS = 100
_SMALLEST = 1e-150  # of a difference, in standard errors


def detectable(stderr: float, units: int, confidence: float) -> float:
    """The smallest true difference that a two-sided paired t-test detects, in the scores' unit.

    Args:
        stderr: of the difference.
        units: samples, or clusters, that it was made from; at least 2.
        confidence: of the test, above 0 and below 1.
    """
    return _quantiles(units, confidence) * stderr


def needed(difference: float, stderr: float, units: int, confidence: float) -> float | None:
    """Units with which a two-sided paired t-test detects a difference of this size.

    None if the difference is 0, or so small next to its error that no float64 is their number.

    Args:
        difference: in the scores' unit.
        stderr: of a difference.
        units: that `stderr` was made from; at least 2.
        confidence: of the test, above 0 and below 1.
    """
    if abs(difference) <= _SMALLEST * stderr or difference == 0:
        return None
    variance = (stderr / difference) ** 2 * units
    # The normal distribution needs no more than Student's: the answer is this number, or one that is a little larger.
    found = max(2.0, float(math.ceil((_normal((1 + confidence) / 2) + _normal(POWER)) ** 2 * variance)))
    while _quantiles(found, confidence) ** 2 * variance > found:
        found += 1
    return found


def detectable_split(changed: int, n: int, confidence: float) -> float | None:
    """The smallest true difference of two shares that McNemar's test detects.

    Args:
        changed: samples whose score differs.
        n: all samples, at least 1.
        confidence: of the test, above 0 and below 1.

    Returns:
        A fraction of 1; None if so few changed that it would not be detected if all changed the same way.
    """
    near, far = _normal((1 + confidence) / 2), _normal(POWER)

    def lacks(difference: float) -> bool:
        spread = max(0.0, changed - n * difference * difference)
        return n * difference < 1 + near * math.sqrt(changed) + far * math.sqrt(spread)

    low, high = 0.0, changed / n
    if lacks(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if lacks(middle) else (low, middle)
    return high


def needed_split(gained: int, lost: int, n: int, confidence: float) -> float | None:
    """Samples with which McNemar's test detects the observed difference; None if it is 0.

    Args:
        gained: samples whose score rose.
        lost: those whose score fell.
        n: all samples, at least 1.
        confidence: of the test, above 0 and below 1.
    """
    if gained == lost:
        return None
    changed, size = (gained + lost) / n, abs(gained - lost) / n
    width = _normal((1 + confidence) / 2) * math.sqrt(changed)
    width += _normal(POWER) * math.sqrt(max(0.0, changed - size * size))
    root = (width + math.sqrt(width * width + 4 * size)) / (2 * size)
    return float(math.ceil(root * root))


def _quantiles(units: float, confidence: float) -> float:
    return t_quantile((1 + confidence) / 2, units - 1) + t_quantile(POWER, units - 1)


def _normal(share: float) -> float:
    return statistics.NormalDist().inv_cdf(share)
