"""Student's t distribution against fifty digits, and what its quantiles invert."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.significance import t_quantile, t_tail
from tests.tables import rows

DEGREES = st.one_of(st.integers(1, 300), st.sampled_from([1_999, 199_999, 3_000_000, 20_000_000]))


def exact(t: float, df: float) -> float:
    """P[T > t], from mpmath's incomplete beta function."""
    with mpmath.workdps(50):
        x = mpmath.mpf(df) / (df + mpmath.mpf(t) ** 2)
        return float(mpmath.betainc(mpmath.mpf(df) / 2, mpmath.mpf("0.5"), 0, x, regularized=True) / 2)


@rows(
    ("t", "df"),
    [(t, df) for df in (1, 2, 3, 10, 29, 199, 1_999) for t in (0.0, 1e-6, 0.5, 1.0, 2.0, 4.5, 30.0)],
)
def test_tails_are_those_of_exact_arithmetic(t: float, df: float):
    """To ten digits, near zero and far out."""
    assert t_tail(t, df) == pytest.approx(exact(t, df), rel=1e-10)


def test_many_degrees_of_freedom_are_normal():
    """From where both agree, it is the normal distribution; below it, it is close to it."""
    for df in (9_999_999.0, 10_000_000.0, 1e12):
        assert t_tail(2.0, df) == pytest.approx(math.erfc(2 / math.sqrt(2)) / 2, rel=1e-6)


def test_the_ends_have_no_tail():
    """An infinite number is exceeded never, or always."""
    assert t_tail(math.inf, 5) == 0.0
    assert t_tail(-math.inf, 5) == 1.0
    assert t_tail(1e200, 5) == 0.0


@given(st.floats(0.001, 0.999), DEGREES)
def test_quantiles_invert_tails(share: float, df: float):
    """The tail beyond a quantile is what the quantile leaves."""
    assert t_tail(t_quantile(share, df), df) == pytest.approx(1 - share, rel=1e-6, abs=1e-12)


@given(st.floats(-50, 50), DEGREES)
def test_both_sides_are_alike(t: float, df: float):
    """The distribution is symmetric around 0."""
    assert t_tail(t, df) + t_tail(-t, df) == pytest.approx(1.0, abs=1e-12)
