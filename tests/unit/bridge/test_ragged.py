"""Arrays end to end."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import Ragged

lengths = st.lists(st.integers(0, 5), max_size=6)


@given(lengths)
def test_it_reads_as_the_list_of_its_parts(sizes: list[int]):
    """By iteration, index, negative index and slice; each part is a view."""
    values = np.arange(sum(sizes))
    parts = np.split(values, np.cumsum(sizes)[:-1]) if sizes else []

    ragged = Ragged(values, np.array(sizes, np.int64))

    assert len(ragged) == len(sizes)
    for index, (part, expected) in enumerate(zip(ragged, parts, strict=True)):
        assert part.tolist() == ragged[index].tolist() == ragged[index - len(sizes)].tolist() == expected.tolist()
        assert part.size == 0 or np.shares_memory(part, values)
    assert [part.tolist() for part in ragged[1:3]] == [part.tolist() for part in parts[1:3]]


def test_what_is_not_there_has_no_index():
    """As in a list."""
    with pytest.raises(IndexError):
        Ragged(np.zeros(1), np.array([1]))[1]


@pytest.mark.parametrize("sizes", [[], [1], [2, 2]])
def test_lengths_that_do_not_add_up_are_refused(sizes: list[int]):
    """Three values cannot be split so."""
    with pytest.raises(ValueError, match="cannot be split"):
        Ragged(np.zeros(3), np.array(sizes, np.int64))


def test_other_values_are_parted_alike():
    """As many values, in the same parts; another number is refused."""
    ragged = Ragged(np.zeros(3), np.array([1, 2]))

    assert [part.tolist() for part in ragged.like(np.array([5, 6, 7]))] == [[5], [6, 7]]
    with pytest.raises(ValueError, match="cannot be split"):
        ragged.like(np.zeros(2))


def test_a_million_parts_are_no_list_before_one_is_asked_for():
    """What computes with the whole pays for no part."""
    sizes = np.ones(1_000_000, np.int64)
    tracemalloc.start()
    try:
        ragged = Ragged(sizes, sizes).like(sizes)
        number = len(ragged)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert number == 1_000_000
    assert most < 100_000
