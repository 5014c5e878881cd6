"""The arithmetic of several teachers: weighted means of probabilities, and the likeliest of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EmbeddedModel, Teacher
from crucible_worker.inference.teachers import chosen_items, likeliest, mixed

weights = st.floats(1e-300, 1e300)
logprob = st.floats(-700, 0) | st.just(-math.inf)


@given(st.lists(st.tuples(weights, logprob), min_size=1, max_size=5))
def test_the_mean_lies_between_its_terms(terms: list[tuple[float, float]]) -> None:
    """Whatever the weights, and an impossible token is one only if no teacher gives it any probability."""
    shares, values = zip(*terms, strict=True)
    (found,) = mixed([np.array([value]) for value in values], shares)

    assert found <= max(values) + 1e-9
    assert found >= min(values) - 1e-9
    assert not math.isnan(found)


def test_the_mean_of_known_probabilities() -> None:
    """Weights are divided by their sum; NaN, the value of no token, stays; impossible for both is impossible."""
    with np.errstate(divide="ignore"):
        one, other = (np.log([[0.5, 0.2, np.nan, 0.0, 0.0]]), np.log([[0.1, 0.2, np.nan, 0.5, 0.0]]))

    found = mixed([one, other], [3, 1])

    np.testing.assert_allclose(np.exp(found), [[0.4, 0.2, np.nan, 0.125, 0.0]])
    assert mixed([one], [5.0]) is one


def test_the_likeliest_are_ordered_by_value_and_then_by_id() -> None:
    """-1 stands last, with -inf, and rows are as wide as wanted."""
    tokens, logprobs = likeliest(
        np.array([[9, 3, 7, -1], [4, -1, -1, -1]]), np.array([[-1, -1, -0.5, 0], [-2, 0, 0, 0]]), 3
    )

    assert tokens.tolist() == [[7, 3, 9], [4, -1, -1]]
    assert logprobs.tolist() == [[-0.5, -1, -1], [-2, -math.inf, -math.inf]]


def test_more_indices_than_items_are_not_all_read() -> None:
    """A message holds millions; one more than there are items tells that one is there twice."""

    class Many(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("all of them are read")

    teacher = Teacher(model=EmbeddedModel("a"), items=Many((0, 1) * 1_000))
    with pytest.raises(InvalidField, match="has an index twice"):
        chosen_items([teacher], 2, "sequences", most=16)
