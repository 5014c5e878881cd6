"""Calibration: whether a model is right as often as its confidence says.

    expected_calibration_error = sum over bins of (n_b / n) * |accuracy_b - confidence_b|

over bins of equal width of the confidence, the probability that the model gives to its prediction; of the n_b
predictions in a bin accuracy_b are right and confidence_b is their mean confidence (Naeini et al., "Obtaining Well
Calibrated Probabilities Using Bayesian Binning", 2015; Guo et al., "On Calibration of Modern Neural Networks", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from crucible_bridge.errors import InvalidField

__all__ = ["CALIBRATION_BINS", "expected_calibration_error"]

CALIBRATION_BINS = 15
"""The number of bins of Guo et al."""


def expected_calibration_error(
    confidences: Sequence[float], right: Sequence[bool], *, bins: int = CALIBRATION_BINS
) -> float:
    """Mean distance of accuracy and confidence, 0 to 1.

    Args:
        confidences: of each prediction, 0 to 1; a bin includes its upper end, the first one also 0.
        right: whether each prediction is right.
        bins: how many, at least 1.

    Raises:
        InvalidField: there is no prediction, the columns differ in length, or a confidence is not a probability.
    """
    if not confidences:
        raise InvalidField("confidences", "is empty")
    if len(confidences) != len(right):
        raise InvalidField("right", f"has {len(right):,} values for {len(confidences):,} confidences")
    inside: dict[int, list[int]] = {}
    for index, confidence in enumerate(confidences):
        if not 0 <= confidence <= 1:
            raise InvalidField(f"confidences[{index}]", f"is {confidence}, must lie in [0, 1]")
        inside.setdefault(max(0, math.ceil(confidence * bins) - 1), []).append(index)
    # n_b / n * |right_b / n_b - sum_b / n_b|: the sizes of the bins cancel.
    distances = (
        abs(sum(right[index] for index in members) - math.fsum(confidences[index] for index in members))
        for members in inside.values()
    )
    return math.fsum(distances) / len(confidences)
