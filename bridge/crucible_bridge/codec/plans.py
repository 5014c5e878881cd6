"""Plans of evaluations <-> v1, and the record that a journal keeps of one.

Paths of fields begin at the plan: `infrequent_evaluations[0].dataset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crucible_bridge.codec.data import dataset_from_v1, dataset_to_v1
from crucible_bridge.codec.evaluation import (
    MAX_EVALUATORS,
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    evaluator_spec_from_v1,
    evaluator_spec_to_v1,
    labels_from_v1,
    limits_from_v1,
    limits_to_v1,
)
from crucible_bridge.codec.fields import at_least, at_most_bytes, child, made, sendable
from crucible_bridge.codec.models import sampling_params_from_v1, sampling_params_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluationPlan, PlannedEvaluation
from crucible_bridge.v1 import evaluation_pb2

__all__ = [
    "MAX_PLAN_ID_BYTES",
    "evaluation_plan_from_v1",
    "evaluation_plan_to_v1",
    "plan_from_record",
    "plan_to_record",
]

MAX_PLAN_ID_BYTES = 160
"""Longest plan_id, in bytes of UTF-8: with step and place behind it, it is still an evaluation_id."""


def evaluation_plan_to_v1(plan: EvaluationPlan, field: str = "") -> evaluation_pb2.EvaluationPlan:
    """Encode a plan.

    Raises:
        InvalidField: a value cannot be sent: wrong type, too wide, no Unicode, or an option that is not JSON.
    """
    often = _planned_to_v1(plan.evaluations, child(field, "evaluations"))
    seldom = _planned_to_v1(plan.infrequent_evaluations, child(field, "infrequent_evaluations"))
    return made(
        evaluation_pb2.EvaluationPlan,
        field,
        plan_id=plan.plan_id,
        run_id=plan.run_id,
        eval_every=plan.eval_every,
        evaluations=often,
        infrequent_eval_every=plan.infrequent_eval_every,
        infrequent_evaluations=seldom,
        correlation_id=plan.correlation_id,
    )


def evaluation_plan_from_v1(message: evaluation_pb2.EvaluationPlan, field: str = "") -> EvaluationPlan:
    """Decode a plan, and check its structure.

    Raises:
        InvalidField: something is missing, out of range or too long.
    """
    for name, limit in (("plan_id", MAX_PLAN_ID_BYTES), ("run_id", MAX_ID_BYTES)):
        if not getattr(message, name):
            raise InvalidField(child(field, name), "is empty")
        at_most_bytes(getattr(message, name), limit, child(field, name))
    at_most_bytes(message.correlation_id, MAX_ID_BYTES, child(field, "correlation_id"))
    at_least(message.eval_every, 0, child(field, "eval_every"))
    at_least(message.infrequent_eval_every, 0, child(field, "infrequent_eval_every"))
    if not message.evaluations and not message.infrequent_evaluations:
        raise InvalidField(child(field, "evaluations"), "is empty, and infrequent_evaluations too: one is needed")
    count = sum(len(planned.evaluators) for planned in (*message.evaluations, *message.infrequent_evaluations))
    if count > MAX_EVALUATORS:
        raise InvalidField(
            child(field, "evaluations"), f"has {count} evaluators with infrequent ones, at most {MAX_EVALUATORS} may be"
        )
    return EvaluationPlan(
        plan_id=message.plan_id,
        run_id=message.run_id,
        eval_every=message.eval_every,
        evaluations=_planned_from_v1(message.evaluations, child(field, "evaluations")),
        infrequent_eval_every=message.infrequent_eval_every,
        infrequent_evaluations=_planned_from_v1(message.infrequent_evaluations, child(field, "infrequent_evaluations")),
        correlation_id=message.correlation_id,
    )


def plan_to_record(plan: EvaluationPlan) -> bytes:
    """The bytes that a journal keeps of a plan."""
    return evaluation_plan_to_v1(plan).SerializeToString()


def plan_from_record(record: bytes) -> EvaluationPlan:
    """The plan that a journal keeps."""
    return evaluation_plan_from_v1(evaluation_pb2.EvaluationPlan.FromString(record))


def _planned_to_v1(several: Sequence[PlannedEvaluation], field: str) -> list[evaluation_pb2.PlannedEvaluation]:
    with sendable(field):
        return [_one_to_v1(planned, f"{field}[{index}]") for index, planned in enumerate(several)]


def _one_to_v1(planned: PlannedEvaluation, field: str) -> evaluation_pb2.PlannedEvaluation:
    with sendable(child(field, "evaluators")):
        evaluators = [
            evaluator_spec_to_v1(spec, f"{child(field, 'evaluators')}[{index}]")
            for index, spec in enumerate(planned.evaluators)
        ]
    with sendable(child(field, "sampling")):
        sampling = (
            None if planned.sampling is None else sampling_params_to_v1(planned.sampling, child(field, "sampling"))
        )
    with sendable(child(field, "limits")):
        limits = limits_to_v1(planned.limits, child(field, "limits"))
    dataset = dataset_to_v1(planned.dataset, child(field, "dataset"))
    return made(
        evaluation_pb2.PlannedEvaluation,
        field,
        evaluators=evaluators,
        dataset=dataset,
        sampling=sampling,
        limits=limits if limits.ListFields() else None,
        metric_prefix=planned.metric_prefix,
        labels=planned.labels,
    )


def _planned_from_v1(several: Sequence[Any], field: str) -> tuple[PlannedEvaluation, ...]:
    return tuple(_one_from_v1(message, f"{field}[{index}]") for index, message in enumerate(several))


def _one_from_v1(message: evaluation_pb2.PlannedEvaluation, field: str) -> PlannedEvaluation:
    if not message.HasField("dataset"):
        raise InvalidField(child(field, "dataset"), "is not given")
    if not message.evaluators:
        raise InvalidField(child(field, "evaluators"), "is empty, at least one is needed")
    at_most_bytes(message.metric_prefix, MAX_NAME_BYTES, child(field, "metric_prefix"))
    sampling = None
    if message.HasField("sampling"):
        sampling = sampling_params_from_v1(message.sampling, child(field, "sampling"))
    return PlannedEvaluation(
        evaluators=tuple(
            evaluator_spec_from_v1(spec, f"{child(field, 'evaluators')}[{index}]")
            for index, spec in enumerate(message.evaluators)
        ),
        dataset=dataset_from_v1(message.dataset, child(field, "dataset")),
        sampling=sampling,
        limits=limits_from_v1(message.limits, child(field, "limits")),
        metric_prefix=message.metric_prefix,
        labels=labels_from_v1(message.labels, child(field, "labels")),
    )
