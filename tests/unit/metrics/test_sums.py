"""Blocks hold every token once, in order, whatever the lengths."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.sequences import BLOCK_TOKENS, blocks, dot, exact_sum
from tests.tables import rows

length = st.one_of(st.integers(0, 3), st.sampled_from([BLOCK_TOKENS + offset for offset in (-1, 0, 1)]))


@given(st.lists(length, max_size=6))
def test_blocks_join_and_cut(lengths: list[int]) -> None:
    """Put together, the blocks of each column are its arrays put together; none is empty or above the limit."""
    first = [np.arange(size, dtype=np.float32) + index for index, size in enumerate(lengths)]
    second = [np.arange(size) * 2 + index for index, size in enumerate(lengths)]

    found = [(a.copy(), b.copy()) for a, b in blocks(first, second, dtypes=(np.float64, np.int64))]

    assert all(0 < a.size <= BLOCK_TOKENS and a.size == b.size for a, b in found)
    assert all(a.dtype == np.float64 and b.dtype == np.int64 for a, b in found)
    for column, arrays in enumerate((first, second)):
        joined = np.concatenate([each[column] for each in found]) if found else np.zeros(0)
        assert np.array_equal(joined, np.concatenate([np.zeros(0), *arrays]))


def test_short_sequences_share_a_block() -> None:
    """A thousand sequences of eight tokens take one block."""
    assert [block.size for (block,) in blocks([np.ones(8)] * 1000, dtypes=(np.float64,))] == [8000]


@rows("size", [0, 1, 8_191, 8_192, 8_193, 3 * 8_192, 30_000])
def test_a_dot_product_in_rows_is_a_dot_product(size: int) -> None:
    """Whatever the length, to the last digits."""
    first, second = np.random.default_rng(size).normal(size=(2, size))

    assert dot(first, second) == pytest.approx(math.fsum(first * second), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("values", [[math.inf, -math.inf], [1e308, 1e308]])
def test_no_sum_is_nan(values: list[float]) -> None:
    """What has no sum in float64 is NaN, not an exception."""
    assert math.isnan(exact_sum(values))
