"""Several tests at once: p-values that are corrected for their number.

Holm's method (1979). Of m p-values in ascending order, the i-th becomes

    max over j <= i of min(1, (m - j + 1) p_j)

If every hypothesis holds, the smallest corrected one is at most alpha with probability alpha or less, whatever the
dependence of the tests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["POWER", "detectable", "detectable_split", "holm", "needed", "needed_split", "t_quantile", "t_tail"]

# Student's t distribution: its upper tail and its quantiles.
#
#     P[T > t] = I_x(df / 2, 1 / 2) / 2,  x = df / (df + t^2),  t >= 0
#
# I is the regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun, 1964, 26.5.8 and
# 26.7.1), which is evaluated from the front (Lentz, 1976).

_NORMAL_FROM = 1e7  # degrees of freedom from which both are those of the normal distribution, to 1e-7
_TINY = 1e-300
_PRECISION = 1e-15
_TERMS = 20_000  # enough for every df below `_NORMAL_FROM`: the fraction needs about sqrt(df) terms
_STEPS = 200


def t_tail(t: float, df: float) -> float:
    """P[T > t].

    Args:
        t: any number; it may be infinite.
        df: degrees of freedom, above 0.
    """
    if t < 0:
        return 1.0 - t_tail(-t, df)
    if df >= _NORMAL_FROM:
        return math.erfc(t / math.sqrt(2)) / 2
    if math.isinf(t):
        return 0.0
    # x and 1 - x, each without cancellation, whatever the size of t.
    x, rest = (df / (df + t * t), t * t / (df + t * t)) if t < 1 else (df / t / (df / t + t), t / (df / t + t))
    return _beta_share(x, rest, df / 2, 0.5) / 2


def t_quantile(share: float, df: float) -> float:
    """The number that T exceeds with probability 1 - share.

    Args:
        share: above 0 and below 1.
        df: degrees of freedom, above 0.
    """
    if share < 0.5:
        return -t_quantile(1.0 - share, df)
    tail, normal = 1.0 - share, statistics.NormalDist().inv_cdf(share)
    if df >= _NORMAL_FROM or share == 0.5:
        return normal
    low, high = 0.0, max(1.0, normal)
    while t_tail(high, df) > tail:
        low, high = high, 2 * high
    # Newton's method, within a bracket that shrinks.
    found = min(max(normal, low), high)
    for _ in range(_STEPS):
        over = t_tail(found, df) - tail
        low, high = (found, high) if over > 0 else (low, found)
        step = found + over / _density(found, df)
        following = step if low < step < high else (low + high) / 2
        if abs(following - found) <= _PRECISION * abs(found):
            break
        found = following
    return found


def _density(t: float, df: float) -> float:
    log = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - (df + 1) / 2 * math.log1p(t * t / df)
    return math.exp(log) / math.sqrt(df * math.pi)


def _beta_share(x: float, rest: float, a: float, b: float) -> float:
    """I_x(a, b) with rest = 1 - x."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log) * _fraction(rest, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    numerator, denominator = 1.0, 1.0 - (a + b) * x / (a + 1)
    denominator = 1.0 / (denominator or _TINY)
    value = denominator
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            denominator = 1.0 / (1.0 + term * denominator or _TINY)
            numerator = 1.0 + term / numerator or _TINY
            change = numerator * denominator
            value *= change
        if abs(change - 1.0) < _PRECISION:
            break
    return value


# What a test of a paired difference can see: the smallest difference it detects, and the samples it needs.
#
# A test detects a true difference with a probability, its power; here 80 %. Both sides of a two-sided test at a
# confidence c count: a = (1 + c) / 2. With the standard error S of a difference D over u units (samples, or clusters of
# them), by quantiles t of Student's distribution with u - 1 degrees of freedom (Cohen, 1988):
#
#     mde_80      (t_a + t_0.8) S
#     needed      the least u' with (t_a + t_0.8) S sqrt(u / u') <= |D|
#
# Where every score is 0 or 1 and m of n samples changed, the test is McNemar's. By quantiles z of the normal
# distribution (Connor, "Sample size for testing differences in proportions for the paired-sample design", 1987), and
# with a whole sample more, as the exact test needs that on average:
#
#     mde_80      the least d with n d >= 1 + z_a sqrt(m) + z_0.8 sqrt(m - n d^2)
#     needed_n    the least n' with n' |D| >= 1 + z_a sqrt(n' m / n) + z_0.8 sqrt(n' (m / n - D^2))
#
# The second one is a quadratic in sqrt(n').

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


def holm(chances: Sequence[float]) -> tuple[float, ...]:
    """Correct p-values for their number.

    Args:
        chances: p-values, each from 0 to 1.

    Returns:
        The corrected ones, in the order given.
    """
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[index]))
        corrected[index] = largest
    return tuple(corrected)
