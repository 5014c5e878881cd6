"""DPO metrics: formulas, digits, and pairs that have none."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.metrics.preference import dpo_metrics
from tests.tables import rows

KEYS = {"dpo_loss", "accuracy", "margin", "chosen_reward", "rejected_reward"}
FIELDS = ("chosen_logprobs", "rejected_logprobs", "chosen_reference_logprobs", "rejected_reference_logprobs")

sums = st.floats(-1e6, 0)


def _exact(columns, beta: float) -> dict[str, float]:
    with mpmath.workdps(60):
        deltas = [(Fraction(c) - Fraction(cr)) - (Fraction(r) - Fraction(rr)) for c, r, cr, rr in zip(*columns)]
        margins = [mpmath.mpf(beta) * d.numerator / d.denominator for d in deltas]
        return {
            "dpo_loss": float(mpmath.fsum(mpmath.log1p(mpmath.exp(-m)) for m in margins) / len(margins)),
            "accuracy": sum(d > 0 for d in deltas) / len(deltas),
            "margin": float(mpmath.fsum(margins) / len(margins)),
            "scale": float(mpmath.fsum(map(abs, margins)) / len(margins)),
        }


def test_the_formulas() -> None:
    """Two pairs, worked out by hand: one preferred as it should be, one a tie."""
    metrics = dpo_metrics(
        np.array([-1.0, -2.0]), np.array([-3.0, -2.0]), np.array([-2.0, -2.0]), np.array([-2.0, -2.0]), beta=0.5
    )

    assert metrics.undefined == {}
    assert metrics.values == {
        "dpo_loss": pytest.approx((math.log1p(math.exp(-1)) + math.log(2)) / 2),
        "accuracy": 0.5,
        "margin": 0.5,
        "chosen_reward": 0.25,
        "rejected_reward": -0.25,
    }


@given(st.lists(st.tuples(sums, sums, sums, sums), min_size=1, max_size=8), st.floats(0.01, 10))
def test_agrees_with_rational_arithmetic(pairs, beta: float) -> None:
    """Loss, accuracy and margin equal their formulas, computed without any rounding."""
    columns = [list(column) for column in zip(*pairs)]
    exact = _exact(columns, beta)

    values = dpo_metrics(*map(np.array, columns), beta=beta).values

    assert values["accuracy"] == exact["accuracy"]
    assert values["margin"] == pytest.approx(exact["margin"], rel=0, abs=1e-12 * exact["scale"])
    assert values["dpo_loss"] == pytest.approx(exact["dpo_loss"], rel=1e-12)


def test_small_margins_of_large_sums_keep_their_digits() -> None:
    """Differences of differences are exact where float64 alone would leave no digit."""
    rng = np.random.default_rng(1)
    chosen, rejected = -1e6 + rng.normal(0, 1e3, (2, 500))
    chosen_reference, rejected_reference = chosen / 3, rejected - chosen * 2 / 3
    columns = (chosen, rejected, chosen_reference, rejected_reference)
    exact = _exact([column.tolist() for column in columns], 0.1)

    values = dpo_metrics(*columns, beta=0.1).values

    assert 0 < exact["scale"] < 1e-9
    assert values["margin"] == pytest.approx(exact["margin"], rel=0, abs=1e-12 * exact["scale"])
    assert values["accuracy"] == exact["accuracy"]


@rows("at", range(4))
def test_values_that_are_not_finite_are_told(at: int) -> None:
    """Keys that need the value say how many are what, and whose; the other answers' reward has a value."""
    columns = [np.array([-1.0, -2.0]) for _ in FIELDS]
    columns[at] = np.array([-1.0, math.nan])

    metrics = dpo_metrics(*columns, beta=0.1)

    kept = "rejected_reward" if "chosen" in FIELDS[at] else "chosen_reward"
    assert set(metrics.values) == {kept}
    assert metrics.undefined == dict.fromkeys(KEYS - {kept}, f"1 of 2 log-probabilities is NaN ({FIELDS[at]})")


def test_sums_beyond_float64_are_told() -> None:
    """Finite log-probabilities may differ by more than float64 holds."""
    metrics = dpo_metrics(np.array([-1e308]), np.array([0.0]), np.array([1e308]), np.array([0.0]), beta=1.0)

    assert metrics.undefined["chosen_reward"] == "the sum is beyond float64"
    assert metrics.values["rejected_reward"] == 0.0


@rows("beta", [0.0, -0.1, math.nan, math.inf])
def test_beta_is_above_zero(beta: float) -> None:
    """And finite."""
    with pytest.raises(InvalidField, match="dpo_beta"):
        dpo_metrics(*[np.zeros(1)] * 4, beta=beta)


def test_pairs_are_needed_and_complete() -> None:
    """The error points at the column that is empty or of another length."""
    with pytest.raises(InvalidField, match="chosen_logprobs is empty"):
        dpo_metrics(*[np.zeros(0)] * 4, beta=0.1)
    for at in range(1, 4):
        columns = [np.zeros(2)] * 4
        columns[at] = np.zeros(3)
        with pytest.raises(InvalidField, match=rf"^{FIELDS[at]} has 3 values for 2 pairs"):
            dpo_metrics(*columns, beta=0.1)
