"""Holm's correction: the numbers, the order, and what it keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.significance import holm
from tests.tables import rows

CHANCES = st.lists(st.floats(0, 1), max_size=12)


@rows(
    ("chances", "corrected"),
    [
        ((), ()),
        ((0.03,), (0.03,)),
        ((0.01, 0.04, 0.03), (0.03, 0.06, 0.06)),
        ((0.5, 0.6), (1.0, 1.0)),
        ((0.01, 0.01), (0.02, 0.02)),
    ],
)
def test_the_smallest_counts_most(chances, corrected):
    """The smallest of m is multiplied by m, the next by m - 1, and none falls below the one before it."""
    assert holm(chances) == pytest.approx(corrected)


@given(CHANCES)
def test_a_correction_never_helps(chances):
    """It is at least the p-value, at most m times it and 1, and keeps the order."""
    corrected = holm(chances)
    for before, after in zip(chances, corrected, strict=True):
        assert before <= after <= 1
        assert after <= max(1.0, len(chances)) * max(chances, default=0) + 1e-12
    order = sorted(range(len(chances)), key=lambda index: chances[index])
    assert [corrected[index] for index in order] == sorted(corrected)
