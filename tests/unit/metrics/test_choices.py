"""Choices compared by their log-probabilities: which is the likeliest, ties, and what is impossible."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.classification import ChoiceLikelihood, Measure, likeliest, right_probability, right_share

values = st.floats(-1e3, 0, allow_nan=False) | st.just(-math.inf)
choices = st.lists(
    st.builds(ChoiceLikelihood, logprob=values, tokens=st.integers(1, 9), bytes=st.integers(1, 40)),
    min_size=2,
    max_size=6,
)


def choice(logprob: float, tokens: int = 1, bytes: int | None = 1) -> ChoiceLikelihood:
    """A choice."""
    return ChoiceLikelihood(logprob=logprob, tokens=tokens, bytes=bytes)


def test_each_measure_has_a_likeliest_of_its_own() -> None:
    """The sum prefers the short one, the mean by token another, that by byte the third."""
    three = [choice(-2, 1, 1), choice(-3, 3, 2), choice(-4, 2, 9)]

    assert [likeliest(three, measure) for measure in Measure] == [(0,), (1,), (2,)]


def test_of_counts_tokens_and_bytes_and_sums_exactly() -> None:
    """Bytes are those of UTF-8; a sum is rounded once."""
    found = ChoiceLikelihood.of(np.array([-0.1] * 10), "né")

    assert (found.logprob, found.tokens, found.bytes) == (-1.0, 10, 3)
    assert ChoiceLikelihood.of(np.array([-1.0, -math.inf]), None) == choice(-math.inf, 2, None)


def test_a_tie_is_shared_whatever_the_order() -> None:
    """Those that share the greatest value are all taken; the score is the share of right ones among them."""
    tied = [choice(-1), choice(-2), choice(-1)]

    assert likeliest(tied, Measure.SUM) == (0, 2)
    assert [right_share((0, 2), right) for right in ({0}, {2}, {1}, {0, 2})] == [0.5, 0.5, 0.0, 1.0]


def test_what_is_impossible_or_has_no_bytes_is_not_compared() -> None:
    """One impossible choice loses; where all are, or bytes are missing, there is no likeliest."""
    assert likeliest([choice(-math.inf), choice(-9)], Measure.SUM) == (1,)
    assert right_probability([choice(-math.inf), choice(-9)], {1}) == 1
    assert likeliest([choice(-math.inf)] * 2, Measure.PER_TOKEN) is None
    assert right_probability([choice(-math.inf)] * 2, {1}) is None
    assert likeliest([choice(-1), choice(-1, bytes=None)], Measure.PER_BYTE) is None


@given(choices, st.data())
def test_the_probability_is_that_of_a_softmax(some: list[ChoiceLikelihood], data: st.DataObject) -> None:
    """Within 0 to 1, 1 over all choices, and equal to the definition where that does not underflow."""
    right = data.draw(st.sets(st.integers(0, len(some) - 1), min_size=1))
    found = right_probability(some, right)

    if all(each.logprob == -math.inf for each in some):
        assert found is None
        return
    assert found is not None
    assert 0 <= found <= 1
    assert right_probability(some, set(range(len(some)))) == 1
    if all(each.logprob > -100 for each in some):
        odds = [math.exp(each.logprob) for each in some]
        assert found == pytest.approx(sum(odds[index] for index in right) / sum(odds))


@given(choices, st.sampled_from(list(Measure)))
def test_nothing_is_likelier_than_the_likeliest(some: list[ChoiceLikelihood], measure: Measure) -> None:
    """All of those taken have one value, and everything else a lower one."""
    taken = likeliest(some, measure)

    if taken is None:
        assert all(each.logprob == -math.inf for each in some)
        return
    by = [each.by(measure) for each in some]
    assert {by[index] for index in taken} == {max(value for value in by if value is not None)}
    assert [index for index, value in enumerate(by) if value == by[taken[0]]] == list(taken)
