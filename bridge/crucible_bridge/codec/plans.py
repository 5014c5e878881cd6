"""Plans of evaluations <-> v1, and <-> the journal's record of one.

Paths of fields begin at the plan: `infrequent_evaluations[0].dataset`.
"""

from __future__ import annotations

from crucible_bridge.codec.generated import evaluation_plan_from_v1, evaluation_plan_to_v1
from crucible_bridge.types import EvaluationPlan
from crucible_bridge.types.bounds import EVALUATION_PLAN_PLAN_ID_MAX_BYTES as MAX_PLAN_ID_BYTES
from crucible_bridge.v1 import evaluation_pb2

__all__ = [
    "MAX_PLAN_ID_BYTES",
    "evaluation_plan_from_v1",
    "evaluation_plan_to_v1",
    "plan_from_record",
    "plan_to_record",
]


def plan_to_record(plan: EvaluationPlan) -> bytes:
    """The journal's record of a plan."""
    return evaluation_plan_to_v1(plan).SerializeToString()


def plan_from_record(record: bytes) -> EvaluationPlan:
    """The plan of a journal's record."""
    return evaluation_plan_from_v1(evaluation_pb2.EvaluationPlan.FromString(record))
