"""Comparisons of evaluations <-> v1."""

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
"""How many improvements, and how many regressions, are listed by default."""
DEFAULT_CONFIDENCE = CompareRequest().confidence
"""Confidence of intervals by default."""
CONFIDENCE_BOUNDS = (COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_LEAST, COMPARE_EVALUATIONS_REQUEST_CONFIDENCE_MOST)
"""The accepted confidences."""
