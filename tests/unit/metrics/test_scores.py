"""Scores reduced to one number, with its standard error."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.scores import Reduce, accuracy, reduced
from tests.tables import rows

scores = st.lists(st.lists(st.none() | st.floats(0, 1), max_size=3), max_size=6)


def test_the_mean_is_over_the_answers_that_are_scored():
    """An unscored answer is not a 0; with one answer a sample the standard error is the usual one."""
    metrics = reduced([[1.0], [None], [0.5], [0.0]], Reduce.MEAN)

    assert metrics.values == {
        "score_mean": 0.5,
        "score_mean_stderr": pytest.approx(statistics.stdev([1.0, 0.5, 0.0]) / math.sqrt(3)),
    }


def test_the_sum_has_the_error_of_so_many_means():
    """Sum and its standard error are the mean's times the number of scored answers."""
    given_scores = [[1.0, 0.0], [0.5, None], [0.25, 0.75]]
    mean, total = reduced(given_scores, Reduce.MEAN).values, reduced(given_scores, Reduce.SUM).values

    assert total["score_sum"] == 2.5
    assert total["score_sum_stderr"] == pytest.approx(5 * mean["score_mean_stderr"])


@rows("reduce", [Reduce.MEAN, Reduce.SUM])
@rows("empty", [[], [[]], [[None, None], [None]]])
def test_nothing_scored_is_undefined(reduce, empty):
    """There is neither a mean of 0 nor a sum of 0."""
    metrics = reduced(empty, reduce)

    assert not metrics.values
    assert set(metrics.undefined.values()) == {"no sample was scored"}


def test_one_sample_has_no_spread():
    """However many answers it has."""
    metrics = reduced([[1.0, 0.0]], Reduce.MEAN)

    assert metrics.values == {"score_mean": 0.5}
    assert metrics.undefined == {"score_mean_stderr": "only one sample was scored"}


def test_none_leaves_the_scores_as_they_are():
    """No metric is made of them."""
    metrics = reduced([[1.0], [0.0]], Reduce.NONE)

    assert (metrics.values, metrics.undefined) == ({}, {})


@given(scores)
def test_the_mean_is_what_accuracy_says(given_scores):
    """Both are one formula."""
    ours, theirs = reduced(given_scores, Reduce.MEAN).values, accuracy(given_scores).values

    assert ours.get("score_mean") == theirs.get("accuracy")
    assert ours.get("score_mean_stderr") == theirs.get("accuracy_stderr")
