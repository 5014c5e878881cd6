"""The expected calibration error: bins, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.metrics.classification import expected_calibration_error
from tests.tables import rows

PREDICTIONS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50)


def test_each_bin_counts_by_its_share():
    """Half of the predictions at 0.9 and 0.5 right, half at 0.1 and none right: (0.4 + 0.1) / 2."""
    found = expected_calibration_error([0.9, 0.9, 0.1, 0.1], [True, False, False, False], bins=10)
    assert found == pytest.approx((0.4 + 0.1) / 2)


def test_a_bin_has_its_upper_end():
    """With two bins 0.5 belongs to the first, and what is above to the second."""
    together = expected_calibration_error([0.5, 0.1], [True, False], bins=2)
    apart = expected_calibration_error([0.50001, 0.1], [True, False], bins=2)
    assert together == pytest.approx(abs(1 - 0.6) / 2)
    assert apart == pytest.approx((0.49999 + 0.1) / 2)


@given(PREDICTIONS)
def test_with_one_bin_it_is_accuracy_against_confidence(predictions):
    """One bin over all: the distance of the two means."""
    confidences, right = zip(*predictions)
    expected = abs(sum(right) - sum(confidences)) / len(right)
    assert expected_calibration_error(confidences, right, bins=1) == pytest.approx(expected, abs=1e-12)


@given(PREDICTIONS, st.integers(1, 30))
def test_it_lies_between_0_and_1(predictions, bins):
    """Whatever is predicted."""
    confidences, right = zip(*predictions)
    assert 0 <= expected_calibration_error(confidences, right, bins=bins) <= 1


@rows(
    ("confidences", "right", "field"),
    [
        ([], [], "confidences"),
        ([0.5], [], "right"),
        ([0.5, 1.1], [True, True], "confidences[1]"),
        ([float("nan")], [True], "confidences[0]"),
    ],
)
def test_what_is_no_prediction_is_refused(confidences, right, field):
    """Nothing, columns of different length, and what is no probability."""
    with pytest.raises(InvalidField) as refused:
        expected_calibration_error(confidences, right)
    assert refused.value.field == field
