"""Enums <-> v1, joined by their names."""

from __future__ import annotations

from crucible_bridge.codec.fields import EnumPair
from crucible_bridge.types import EvaluationState, EvaluatorKind, Goal, OrchestratorCall, ReportFormat, Verdict
from crucible_bridge.v1 import evaluation_pb2, orchestrator_pb2, types_pb2

__all__ = [
    "EVALUATION_STATE_PAIR",
    "EVALUATOR_KIND_PAIR",
    "GOAL_PAIR",
    "ORCHESTRATOR_CALL_PAIR",
    "VERDICT_PAIR",
    "goal_from_v1",
    "goal_to_v1",
    "report_format_from_v1",
    "report_format_to_v1",
    "state_to_v1",
    "states_from_v1",
    "verdict_from_v1",
    "verdict_to_v1",
    "verdicts_from_v1",
]

EVALUATION_STATE_PAIR = EnumPair(EvaluationState, evaluation_pb2.EvaluationState, "EVALUATION_STATE_")
EVALUATOR_KIND_PAIR = EnumPair(EvaluatorKind, evaluation_pb2.EvaluatorKind, "EVALUATOR_KIND_")
GOAL_PAIR = EnumPair(Goal, evaluation_pb2.Goal, "GOAL_")
ORCHESTRATOR_CALL_PAIR = EnumPair(OrchestratorCall, orchestrator_pb2.OrchestratorCall, "ORCHESTRATOR_CALL_")
VERDICT_PAIR = EnumPair(Verdict, types_pb2.Verdict, "VERDICT_")
_FORMAT = EnumPair(ReportFormat, evaluation_pb2.ReportFormat, "REPORT_FORMAT_")

goal_to_v1, goal_from_v1 = GOAL_PAIR.to_v1, GOAL_PAIR.from_v1
report_format_to_v1, report_format_from_v1 = _FORMAT.to_v1, _FORMAT.from_v1
state_to_v1, states_from_v1 = EVALUATION_STATE_PAIR.to_v1, EVALUATION_STATE_PAIR.all_from_v1
verdict_to_v1, verdict_from_v1 = VERDICT_PAIR.to_v1, VERDICT_PAIR.from_v1
verdicts_from_v1 = VERDICT_PAIR.all_from_v1
