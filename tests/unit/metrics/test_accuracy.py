"""Accuracy: its keys, its uncertainty, and what unscored answers do to it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.scores import ACCURACY_KEYS, accuracy

score = st.sampled_from([0.0, 1.0, None]) | st.floats(0, 1)
scores = st.lists(st.lists(score, min_size=1, max_size=4), max_size=12)


def test_accuracy_is_over_the_scored() -> None:
    """An unscored answer is not wrong, but in accuracy_strict it counts as wrong."""
    values = accuracy([[1.0], [0.0], [None], [1.0]]).values

    assert values["accuracy"] == 2 / 3
    assert values["accuracy_strict"] == 2 / 4


def test_partial_answers_count_by_their_score() -> None:
    """Half right is half an answer."""
    assert accuracy([[1.0], [0.5]]).values["accuracy"] == 0.75


@pytest.mark.parametrize("nothing", [[], [[]]])
def test_without_answers_every_key_is_undefined(nothing) -> None:
    """An accuracy of nothing is not zero: it is undefined, and says why."""
    metrics = accuracy(nothing)

    assert metrics.values == {}
    assert metrics.undefined == dict.fromkeys(ACCURACY_KEYS, "no sample was scored")


@pytest.mark.parametrize("unscored", [[[None]], [[None, None], [None]]])
def test_where_no_answer_is_scored_only_the_strict_accuracy_is_a_number(unscored) -> None:
    """Unscored answers count as wrong in accuracy_strict, and for nothing in every other key."""
    metrics = accuracy(unscored)

    assert metrics.values == {"accuracy_strict": 0.0}
    assert set(metrics.undefined) == set(ACCURACY_KEYS) - {"accuracy_strict"}


def test_one_scored_sample_has_no_standard_error() -> None:
    """A spread needs two samples; the interval does not."""
    metrics = accuracy([[1.0], [None]])

    assert metrics.undefined == {"accuracy_stderr": "only one sample was scored"}
    assert metrics.values["accuracy_ci95_low"] == pytest.approx(0.2065, abs=1e-4)
    assert metrics.values["accuracy_ci95_high"] == 1.0


def test_wilson_interval_of_independent_samples() -> None:
    """81 of 263 is Wilson's interval (0.2553, 0.3662), an example of Newcombe (1998)."""
    values = accuracy([[1.0]] * 81 + [[0.0]] * 182).values

    assert values["accuracy_ci95_low"] == pytest.approx(0.2553, abs=5e-5)
    assert values["accuracy_ci95_high"] == pytest.approx(0.3662, abs=5e-5)


def test_standard_error_of_independent_samples() -> None:
    """With one answer a sample it is the sample standard deviation over the root of their number."""
    values = accuracy([[1.0], [0.0], [0.0], [1.0], [1.0]]).values

    assert values["accuracy_stderr"] == pytest.approx(math.sqrt(0.3 / 5))


def test_repeats_that_agree_add_no_certainty() -> None:
    """Asking every sample four times, with the same answers, is worth what asking once is worth."""
    once = accuracy([[1.0], [0.0]] * 10).values
    often = accuracy([[1.0] * 4, [0.0] * 4] * 10).values

    assert often["accuracy_stderr"] == pytest.approx(once["accuracy_stderr"])
    # V has C - 1 in it where Wilson's interval has C: the effective size is 19, not 20.
    assert often["accuracy_ci95_low"] == pytest.approx(
        accuracy([[1.0], [0.0]] * 9 + [[0.5]]).values["accuracy_ci95_low"]
    )


def test_repeats_of_samples_all_right_count_once() -> None:
    """Where every answer is right, the effective size is the number of samples."""
    once, often = accuracy([[1.0]] * 10).values, accuracy([[1.0] * 8] * 10).values

    assert often == once


@given(scores)
def test_every_key_is_there_once_and_the_interval_holds_the_mean(given_scores) -> None:
    """Each key has a value or a reason, and 0 <= low <= accuracy <= high <= 1."""
    metrics = accuracy(given_scores)

    assert set(metrics.values) | set(metrics.undefined) == set(ACCURACY_KEYS)
    assert not set(metrics.values) & set(metrics.undefined)
    if "accuracy" in metrics.values:
        low, high = metrics.values["accuracy_ci95_low"], metrics.values["accuracy_ci95_high"]
        assert 0 <= low <= metrics.values["accuracy"] <= high <= 1


@given(scores)
def test_a_sample_more_or_less_unscored_changes_only_the_strict_accuracy(given_scores) -> None:
    """An unscored sample is absent from everything but accuracy_strict."""
    before, after = accuracy(given_scores).values, accuracy([*given_scores, [None]]).values

    assert {**before, "accuracy_strict": None} == {**after, "accuracy_strict": None} or not before
    assert not before or after["accuracy_strict"] <= before["accuracy_strict"]
