"""Discounted sums: the recurrence, in pieces."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.kl_penalty import suffix_sums

lengths = st.lists(st.sampled_from([0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 4097]), min_size=1, max_size=5)


def _one_by_one(values: np.ndarray, lengths: list[int], discount: float) -> np.ndarray:
    expected, end = np.empty_like(values), 0
    for length in lengths:
        running, end = 0.0, end + length
        for index in range(end - 1, end - length - 1, -1):
            running = values[index] + discount * running
            expected[index] = running
    return expected


@given(lengths, st.sampled_from([1.0, 0.999, 0.9, 0.5, 1e-3, 1e-300]), st.integers(0, 2**32))
def test_agrees_with_the_recurrence(lengths: list[int], discount: float, seed: int) -> None:
    """Every entry is the one that steps from the last token to the first give, for sequences of any lengths."""
    values = np.random.default_rng(seed).normal(size=sum(lengths))
    expected = _one_by_one(values, lengths, discount)
    scale = _one_by_one(np.abs(values), lengths, discount)

    suffix_sums(values, np.array(lengths), discount)

    assert np.all(np.abs(values - expected) <= 1e-12 * scale)


def test_a_long_sequence_keeps_its_digits() -> None:
    """Rounding errors do not grow with the tokens: a sum of 300,000 terms is off by its last digits only."""
    values = np.full(300_000, 0.1)

    suffix_sums(values, np.array([values.size]), 1.0)

    assert values[0] == pytest.approx(math.fsum([0.1] * 300_000), rel=1e-14)
