"""Paired differences: the formulas, their intervals, and what is undefined."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.paired import MAX_DISTINCT, MAX_SCORE, PAIRED_KEYS, mcnemar_p, paired_difference
from tests.tables import rows

SCORES = st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8)), min_size=2, max_size=40)


def compared(before, after, confidence=0.95):
    """The difference of two lists of scores."""
    return paired_difference(np.array(before, np.float64), np.array(after, np.float64), confidence=confidence)


@given(SCORES)
def test_mean_and_error_are_those_of_the_differences(pairs):
    """The difference is the mean of the samples' differences, its error their standard deviation over sqrt(n)."""
    before, after = ([pair[side] / 4 for pair in pairs] for side in (0, 1))
    values = compared(before, after).metrics.values

    differences = [y - x for x, y in zip(before, after)]
    assert values["difference"] == pytest.approx(statistics.fmean(differences), abs=1e-12)
    assert values["difference_stderr"] == pytest.approx(
        statistics.stdev(differences) / math.sqrt(len(pairs)), abs=1e-12
    )
    assert values["mean"] - values["baseline_mean"] == pytest.approx(values["difference"], abs=1e-12)


@given(SCORES, st.floats(0.5, 0.999))
def test_turning_the_sides_turns_the_difference(pairs, confidence):
    """Comparing the other way round negates the difference, and keeps its error and the test's answer."""
    before, after = ([float(pair[side] > 0) for pair in pairs] for side in (0, 1))
    there = compared(before, after, confidence).metrics.values
    back = compared(after, before, confidence).metrics.values

    assert back["difference"] == -there["difference"]
    assert back["difference_stderr"] == there["difference_stderr"]
    assert back["mcnemar_p"] == there["mcnemar_p"]
    assert back["difference_ci_low"] == pytest.approx(-there["difference_ci_high"])


def test_binary_scores_have_the_interval_of_bonett_and_price():
    """With 10 gained and 2 lost of 100 it is 11/102 - 3/102 +- 1.96 sqrt((14/102 - (8/102)^2) / 102)."""
    before = [0.0] * 10 + [1.0] * 2 + [1.0] * 88
    after = [1.0] * 10 + [0.0] * 2 + [1.0] * 88
    found = compared(before, after)

    half = 1.959963984540054 * math.sqrt((14 / 102 - (8 / 102) ** 2) / 102)
    assert found.interval_method == "bonett_price"
    assert found.metrics.values["difference_ci_low"] == pytest.approx(8 / 102 - half)
    assert found.metrics.values["difference_ci_high"] == pytest.approx(8 / 102 + half)


@rows(
    ("gained", "lost", "chance"),
    [(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (10, 2, 158 / 4096), (2, 10, 158 / 4096), (0, 20, 2 / 2**20), (3, 2, 1.0)],
)
def test_mcnemars_test_is_exact(gained, lost, chance):
    """It is twice the lesser tail of the binomial distribution, at most 1."""
    assert mcnemar_p(gained, lost) == pytest.approx(chance, rel=1e-12)


def test_mcnemars_test_of_many_is_the_normal_one():
    """Of 50,000 gained against 49,000 lost it is that of the normal distribution, to a hundredth."""
    z = (1_000 - 1) / math.sqrt(99_000)
    assert mcnemar_p(50_000, 49_000) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.01)


@pytest.mark.parametrize("rounded", [False, True])
def test_the_bootstrap_comes_near_the_normal_interval_where_that_holds(rounded):
    """Of 400 differences from a normal distribution both are alike to a tenth of their width, few sizes or many."""
    random = np.random.default_rng(3)
    before = random.normal(size=400)
    differences = random.normal(0.5, 1.0, size=400)
    if rounded:
        before, differences = np.round(before), np.round(differences)
    found = compared(before, before + differences)
    values = found.metrics.values

    half = 1.96 * values["difference_stderr"]
    assert found.interval_method == "bootstrap"
    assert values["difference_ci_low"] == pytest.approx(values["difference"] - half, abs=0.2 * half)
    assert values["difference_ci_high"] == pytest.approx(values["difference"] + half, abs=0.2 * half)


def test_an_interval_covers_as_often_as_it_says():
    """Of 300 intervals at 90 % between 250 and 290 hold the true difference, for binary scores and for others."""
    random = np.random.default_rng(11)
    covered = {"bonett_price": 0, "bootstrap": 0}
    for _ in range(300):
        before, after = (random.random(60) < share for share in (0.5, 0.6))
        values = compared(before, after, 0.9).metrics.values
        covered["bonett_price"] += values["difference_ci_low"] <= 0.1 <= values["difference_ci_high"]
        before, after = random.random(60), random.random(60) + 0.1
        values = compared(before, after, 0.9).metrics.values
        covered["bootstrap"] += values["difference_ci_low"] <= 0.1 <= values["difference_ci_high"]

    assert all(250 <= count <= 290 for count in covered.values()), covered


def test_the_same_scores_give_the_same_interval():
    """The resamples are drawn by a fixed seed: equal input, equal bits."""
    before, after = [0.1, 0.5, 0.9, 0.2], [0.3, 0.4, 0.9, 0.7]
    assert compared(before, after) == compared(before, after)


def test_very_many_sizes_of_difference_have_the_normal_interval():
    """Above the limit of different differences it is D +- z times its error."""
    count = MAX_DISTINCT + 1
    found = compared(np.zeros(count), np.arange(count) / count)
    values = found.metrics.values

    assert found.interval_method == "normal"
    half = 1.959963984540054 * values["difference_stderr"]
    assert values["difference_ci_high"] - values["difference"] == pytest.approx(half)


def test_without_samples_nothing_is_defined():
    """No sample in common: every key is undefined, with the reason."""
    found = compared([], [])
    assert not found.metrics.values
    assert set(found.metrics.undefined) == set(PAIRED_KEYS)


def test_one_sample_has_no_error():
    """One sample in common has a difference, and no error or bootstrap."""
    found = compared([0.25], [0.75])
    assert found.metrics.values == {"baseline_mean": 0.25, "mean": 0.75, "difference": 0.5}
    assert set(found.metrics.undefined) == set(PAIRED_KEYS) - set(found.metrics.values)
    assert found.interval_method == ""


def test_scores_without_a_square_are_told():
    """A score beyond what can be squared leaves every key undefined, and says so."""
    found = compared([0.0, 1.0], [2 * MAX_SCORE, 1.0])
    assert not found.metrics.values
    assert found.metrics.undefined["difference"] == f"a score is beyond {MAX_SCORE:g}"
