"""Evaluations beside each other <-> v1."""

from crucible_bridge.codec.generated import (
    compare_request_from_v1,
    compare_request_to_v1,
    evaluation_comparison_from_v1,
    evaluation_comparison_to_v1,
)
from crucible_bridge.types import CompareRequest
from crucible_bridge.types.bounds import (
    COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_LEAST,
    COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_MOST,
)
from crucible_bridge.types.bounds import COMPARE_EVALUATIONS_REQUEST_MAX_LISTED_MOST as MAX_LISTED

__all__ = [
    "CONFIDENCE_BOUNDS",
    "DEFAULT_CONFIDENCE",
    "DEFAULT_LISTED",
    "MAX_LISTED",
    "compare_request_from_v1",
    "compare_request_to_v1",
    "evaluation_comparison_from_v1",
    "evaluation_comparison_to_v1",
]

DEFAULT_LISTED = CompareRequest().max_listed
"""Improvements, and regressions, that are listed where the request does not say."""
DEFAULT_CONFIDENCE = CompareRequest().confidence
"""Of intervals, where the request does not say."""
CONFIDENCE_BOUNDS = (COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_LEAST, COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_MOST)
"""What is accepted."""
