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


def compared(before, after, confidence=0.95, clusters=None):
    """The difference of two lists of scores."""
    labels = None if clusters is None else np.array(clusters, np.int64)
    return paired_difference(
        np.array(before, np.float64), np.array(after, np.float64), confidence=confidence, clusters=labels
    )


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


def test_the_p_value_is_that_of_the_paired_t_test():
    """With differences 1, 2, 3, 4, 5: t = 3 / sqrt(2.5 / 5), 4 degrees of freedom, two-sided."""
    values = compared([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]).metrics.values

    assert values["p"] == pytest.approx(0.0132355, rel=1e-5)
    assert "mcnemar_p" not in values


def test_the_p_value_of_binary_scores_is_mcnemars():
    """Whoever reads `p` gets the exact test where there is one."""
    values = compared([0.0] * 10 + [1.0] * 2 + [1.0] * 88, [1.0] * 10 + [0.0] * 2 + [1.0] * 88).metrics.values
    assert values["p"] == values["mcnemar_p"] == mcnemar_p(10, 2)


@rows(("before", "after", "chance"), [([0.5, 0.5], [0.5, 0.5], 1.0), ([0.5, 0.25], [1.0, 0.75], 0.0)])
def test_differences_without_spread_have_a_p_value(before, after, chance):
    """All 0 is no evidence at all; all alike and not 0 leaves no doubt."""
    assert compared(before, after).metrics.values["p"] == chance


def test_what_cannot_be_told_says_why():
    """Without a difference no number of samples is enough, and few changes are never detected."""
    undefined = compared([1.0, 0.0] * 20, [0.0, 1.0] + [1.0, 0.0] * 19).metrics.undefined
    assert undefined["needed_n"] == "the difference is 0"
    assert undefined["mde_80"] == "only 2 scores changed"


@given(SCORES)
def test_clusters_of_one_sample_are_samples(pairs):
    """The standard error is the same as without clusters; only McNemar's test is left out."""
    before, after = ([pair[side] / 4 for pair in pairs] for side in (0, 1))
    plain = compared(before, after).metrics.values
    alone = compared(before, after, clusters=range(len(pairs))).metrics.values

    assert alone["difference_stderr"] == pytest.approx(plain["difference_stderr"], abs=1e-12)
    assert alone["n_clusters"] == len(pairs)
    assert "mcnemar_p" not in alone


@given(SCORES)
def test_copies_of_a_sample_are_one_observation(pairs):
    """Each sample three times over, as a cluster, has the error of the samples themselves."""
    before, after = ([pair[side] / 4 for pair in pairs] for side in (0, 1))
    once = compared(before, after, clusters=range(len(pairs))).metrics.values
    thrice = compared(before * 3, after * 3, clusters=list(range(len(pairs))) * 3).metrics.values

    for key in ("difference", "difference_stderr", "difference_ci_low", "p", "mde_80", "n_clusters"):
        assert thrice[key] == pytest.approx(once[key], rel=1e-9, abs=1e-12)


def test_the_error_of_clusters_is_robust():
    """Of clusters {1, 1}, {3}, {-2, 0}, G = 3: sqrt(3 / 2 (0.8^2 + 2.4^2 + 3.2^2)) / 5."""
    found = compared([0.0] * 5, [1.0, 1.0, 3.0, -2.0, 0.0], clusters=[7, 7, 2, 0, 0])
    stderr = math.sqrt(1.5 * (0.8**2 + 2.4**2 + 3.2**2)) / 5

    assert found.metrics.values["difference_stderr"] == pytest.approx(stderr)
    assert found.metrics.values["difference_ci_high"] == pytest.approx(0.6 + 4.302652730 * stderr)
    assert (found.interval_method, found.metrics.values["n_clusters"]) == ("cluster_t", 3)


def test_one_cluster_has_no_error():
    """What all samples have in common cannot be told from chance."""
    found = compared([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], clusters=[0, 0, 0])
    assert found.metrics.values.keys() == {"baseline_mean", "mean", "difference", "n_clusters"}
    assert found.metrics.undefined["p"] == "all samples are of one cluster"
    assert found.interval_method == ""


def test_intervals_of_clusters_cover_as_often_as_they_say():
    """Of 400 intervals at 90 % over 30 clusters of 5, 340 to 380 hold the difference; far fewer plain ones do."""
    random = np.random.default_rng(23)
    labels = np.repeat(np.arange(30), 5)
    covered = {"cluster_t": 0, "bootstrap": 0}
    for _ in range(400):
        common = np.repeat(random.normal(0.2, 1, 30), 5)
        after = common + random.normal(0, 0.3, 150)
        for found in (compared(np.zeros(150), after, 0.9, labels), compared(np.zeros(150), after, 0.9)):
            values = found.metrics.values
            covered[found.interval_method] += values["difference_ci_low"] <= 0.2 <= values["difference_ci_high"]

    assert 340 <= covered["cluster_t"] <= 380
    assert covered["bootstrap"] < 300
