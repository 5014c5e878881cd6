"""Student's t distribution: its upper tail and its quantiles.

    P[T > t] = I_x(df / 2, 1 / 2) / 2,  x = df / (df + t^2),  t >= 0

I is the regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun, 1964, 26.5.8 and
26.7.1), which is evaluated from the front (Lentz, 1976).
"""

from __future__ import annotations

import math
import statistics

__all__ = ["t_quantile", "t_tail"]

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
