"""pass@k: the unbiased estimator, to the last digits, and its limits."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.metrics.pass_at_k import MAX_KS, MAX_SAMPLES_PER_PROBLEM, most_draws, pass_at_k
from tests.tables import rows

problem = st.integers(0, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def _exact(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(math.comb(n - c, k), math.comb(n, k))


@given(st.lists(problem, min_size=1, max_size=6), st.sets(st.integers(1, 310), min_size=1, max_size=5))
def test_agrees_with_binomial_coefficients(problems, ks) -> None:
    """The mean over the problems with enough samples equals the formula in rational arithmetic."""
    metrics = pass_at_k(np.array([n for n, _ in problems]), np.array([c for _, c in problems]), sorted(ks))

    for k in ks:
        enough = [_exact(n, c, k) for n, c in problems if n >= k]
        if enough:
            assert metrics.values[f"pass@{k}"] == pytest.approx(float(sum(enough) / len(enough)), rel=1e-12)
        else:
            assert f"pass@{k}" in metrics.undefined


@rows(
    ("n", "c", "k"),
    [
        *[(100_000, 1, 1), (100_000, 3, 7), (100_000, 400, 300), (50_000, 20_000, 30_000), (1000, 999, 1)],
        # On both sides of the border from which on a chance is certain.
        *[(100_000, 600, 6_000), (100_000, 1_999, 1_999), (100_000, 2_001, 2_000), (100_000, 36, 90_000)],
        *[(100_000, 630, 6_300), (100_000, 7_000, 7_049), (50, 49, 1), (50, 2, 47), (300, 100, 100)],
    ],
)
def test_small_and_large_chances_keep_their_digits(n: int, c: int, k: int) -> None:
    """Rare successes among many samples, and near-certain ones."""
    values = pass_at_k(np.array([n]), np.array([c]), [k]).values

    assert values[f"pass@{k}"] == pytest.approx(float(_exact(n, c, k)), rel=1e-12)


def test_certain_and_impossible_are_exact() -> None:
    """Fewer wrong samples than draws is 1, no right one is 0."""
    values = pass_at_k(np.array([10, 10]), np.array([7, 0]), [4]).values

    assert values == {"pass@4": 0.5}


def test_too_few_samples_are_undefined() -> None:
    """A k that no problem has as many samples for has no mean; problems with fewer do not count for the others."""
    metrics = pass_at_k(np.array([1, 4]), np.array([1, 0]), [1, 2, 5])

    assert metrics.values == {"pass@1": 0.5, "pass@2": 0.0}
    assert metrics.undefined == {"pass@5": "no problem has 5 samples"}


LIMIT = MAX_SAMPLES_PER_PROBLEM
BAD = [
    ([], [], [1], "samples"),
    ([1.0], [1], [1], "samples"),
    ([1, 2], [1], [1], "successes"),
    ([1], [1.0], [1], "successes"),
    ([3, -1], [0, 0], [1], "samples[1]"),
    ([LIMIT + 1], [0], [1], "samples[0]"),
    ([3, 3], [3, 4], [1], "successes[1]"),
    ([3], [-1], [1], "successes[0]"),
    ([3], [1], [], "k"),
    ([3], [1], [1, 0], "k[1]"),
    ([3], [1], [1, 2, 1], "k[2]"),
    ([3], [1], list(range(1, MAX_KS + 2)), "k"),
]


@rows(("samples", "successes", "ks", "field"), BAD)
def test_what_is_out_of_range_names_its_field(samples: list, successes: list, ks: list[int], field: str) -> None:
    """The error points at the column, and at the entry where there is one."""
    n, c = (np.array(column, None if column else np.int64) for column in (samples, successes))

    with pytest.raises(InvalidField) as caught:
        pass_at_k(n, c, ks)

    assert caught.value.field == field


class _Counted:
    """numpy, which adds up how many logarithms it is asked for."""

    def __init__(self) -> None:
        self.draws = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def log1p(self, values: np.ndarray) -> np.ndarray:
        self.draws += values.size
        return np.log1p(values)


@pytest.mark.parametrize("successes", [100, 1_000, 2_000, 7_000, 50_000])
def test_the_draws_looked_at_are_bounded(monkeypatch: pytest.MonkeyPatch, successes: int) -> None:
    """By what is told before, and by the square root of the samples, however many are right and asked for."""
    counted = _Counted()
    monkeypatch.setattr("crucible_worker.metrics.pass_at_k.np", counted)
    samples, ks = np.array([LIMIT]), range(successes - 50, successes + 50)

    pass_at_k(samples, np.array([successes]), ks)

    assert counted.draws <= most_draws(samples, ks) <= MAX_KS * 2_001


def test_more_draws_than_the_limit_are_refused() -> None:
    """A thousand problems of their own with a hundred values of k, and most draws each."""
    samples = np.full(1_000, LIMIT)

    with pytest.raises(InvalidField, match="k takes more than 50,000,000 draws"):
        pass_at_k(samples, np.arange(900, 1_900), range(900, 1_000))


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8"])
def test_integers_of_any_size_are_taken(dtype: str) -> None:
    """Limits are beyond what the small ones hold."""
    assert pass_at_k(np.array([200], dtype), np.array([100], dtype), [1]).values == {"pass@1": 0.5}


def test_the_limits_themselves_are_accepted() -> None:
    """As many samples and as many values of k as there may be."""
    values = pass_at_k(np.array([LIMIT]), np.array([LIMIT]), range(1, MAX_KS + 1)).values

    assert len(values) == MAX_KS
