"""Requests of evaluations <-> v1.

Decoding a request checks its structure: what is missing, out of range or too long. It does not check whether a kind, a
model or a data set exists.
"""

from crucible_bridge.codec.enums import goal_from_v1, goal_to_v1, report_format_from_v1, report_format_to_v1
from crucible_bridge.codec.generated import (
    evaluate_request_from_v1,
    evaluate_request_to_v1,
    evaluator_info_from_v1,
    evaluator_info_to_v1,
    limits_from_v1,
    limits_to_v1,
)
from crucible_bridge.codec.requests import evaluator_spec_from_v1, evaluator_spec_to_v1
from crucible_bridge.types.bounds import EVALUATE_REQUEST_EVALUATION_ID_MAX_BYTES as MAX_ID_BYTES
from crucible_bridge.types.bounds import EVALUATE_REQUEST_EVALUATORS_MAX_COUNT as MAX_EVALUATORS
from crucible_bridge.types.bounds import EVALUATE_REQUEST_LABELS_MAX_BYTES as MAX_LABEL_BYTES
from crucible_bridge.types.bounds import EVALUATE_REQUEST_LABELS_MAX_COUNT as MAX_LABELS
from crucible_bridge.types.bounds import EVALUATOR_SPEC_NAME_MAX_BYTES as MAX_NAME_BYTES

__all__ = [
    "MAX_EVALUATORS",
    "MAX_ID_BYTES",
    "MAX_LABELS",
    "MAX_LABEL_BYTES",
    "MAX_NAME_BYTES",
    "evaluate_request_from_v1",
    "evaluate_request_to_v1",
    "evaluator_info_from_v1",
    "evaluator_info_to_v1",
    "evaluator_spec_from_v1",
    "evaluator_spec_to_v1",
    "goal_from_v1",
    "goal_to_v1",
    "limits_from_v1",
    "limits_to_v1",
    "report_format_from_v1",
    "report_format_to_v1",
]
