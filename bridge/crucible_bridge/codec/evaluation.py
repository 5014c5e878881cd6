"""Evaluations as they are asked for <-> v1.

Decoding a request checks its structure: what is missing, out of range or too long. Whether a kind, a model or a data
set exists is for those who hold them to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from crucible_bridge.codec.data import dataset_from_v1, dataset_to_v1
from crucible_bridge.codec.fields import EnumPair, at_least, at_most_bytes, child, entry, made, sendable
from crucible_bridge.codec.models import (
    model_ref_from_v1,
    model_ref_to_v1,
    sampling_params_from_v1,
    sampling_params_to_v1,
)
from crucible_bridge.codec.options import options_from_v1, options_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluatorInfo,
    EvaluatorKind,
    EvaluatorSpec,
    Goal,
    Limits,
    ReportFormat,
)
from crucible_bridge.v1 import evaluation_pb2

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
    "labels_from_v1",
    "limits_from_v1",
    "limits_to_v1",
    "report_format_from_v1",
    "report_format_to_v1",
]

MAX_ID_BYTES = 200
"""Longest evaluation_id, run_id and correlation_id, in bytes of UTF-8."""
MAX_NAME_BYTES = 200
"""Longest kind and name of an evaluator, and longest metric_prefix."""
MAX_EVALUATORS = 64
"""Evaluators of one request."""
MAX_LABELS = 64
"""Labels of one request."""
MAX_LABEL_BYTES = 1_000
"""Longest key and longest value of a label."""

_KIND = EnumPair(EvaluatorKind, evaluation_pb2.EvaluatorKind, "EVALUATOR_KIND_")
_FORMAT = EnumPair(ReportFormat, evaluation_pb2.ReportFormat, "REPORT_FORMAT_")
_GOAL = EnumPair(Goal, evaluation_pb2.Goal, "GOAL_")

goal_to_v1 = _GOAL.to_v1
goal_from_v1 = _GOAL.from_v1

report_format_to_v1 = _FORMAT.to_v1
report_format_from_v1 = _FORMAT.from_v1


def evaluator_spec_to_v1(spec: EvaluatorSpec, field: str = "evaluator") -> evaluation_pb2.EvaluatorSpec:
    """Encode one evaluator of a request.

    Raises:
        InvalidField: an option is not JSON, or text is no Unicode.
    """
    with sendable(field):
        options = options_to_v1(spec.options, child(field, "options")) if spec.options else None
    return made(evaluation_pb2.EvaluatorSpec, field, kind=spec.kind, name=spec.name, options=options)


def evaluator_spec_from_v1(message: evaluation_pb2.EvaluatorSpec, field: str) -> EvaluatorSpec:
    """Decode one evaluator of a request; its kind, and its name where it has one, must not be empty."""
    if not message.kind:
        raise InvalidField(child(field, "kind"), "is empty")
    at_most_bytes(message.kind, MAX_NAME_BYTES, child(field, "kind"))
    name = message.name if message.HasField("name") else None
    if name is not None:
        if not name:
            raise InvalidField(child(field, "name"), "is empty, leave it unset for bare keys")
        at_most_bytes(name, MAX_NAME_BYTES, child(field, "name"))
    return EvaluatorSpec(
        kind=message.kind, name=name, options=options_from_v1(message.options, child(field, "options"))
    )


def limits_to_v1(limits: Limits, field: str = "limits") -> evaluation_pb2.Limits:
    """Encode the bounds of an evaluation."""
    return made(
        evaluation_pb2.Limits,
        field,
        concurrency=limits.concurrency,
        deadline_ms=limits.deadline_ms,
        stall_timeout_ms=limits.stall_timeout_ms,
        sample_timeout_ms=limits.sample_timeout_ms,
        max_unscored_share=limits.max_unscored_share,
        max_unscored=limits.max_unscored,
    )


def limits_from_v1(message: evaluation_pb2.Limits, field: str) -> Limits:
    """Decode the bounds of an evaluation: times and concurrency from 1, a share within 0 and 1, a count from 0."""
    for name in ("concurrency", "deadline_ms", "stall_timeout_ms", "sample_timeout_ms"):
        if message.HasField(name):
            at_least(getattr(message, name), 1, child(field, name))
    if message.HasField("max_unscored"):
        at_least(message.max_unscored, 0, child(field, "max_unscored"))
    share = message.max_unscored_share if message.HasField("max_unscored_share") else None
    if share is not None and not 0 <= share <= 1:
        raise InvalidField(child(field, "max_unscored_share"), f"is {share}, must be within 0 and 1")
    return Limits(
        concurrency=message.concurrency if message.HasField("concurrency") else None,
        deadline_ms=message.deadline_ms if message.HasField("deadline_ms") else None,
        stall_timeout_ms=message.stall_timeout_ms if message.HasField("stall_timeout_ms") else None,
        sample_timeout_ms=message.sample_timeout_ms if message.HasField("sample_timeout_ms") else None,
        max_unscored_share=share,
        max_unscored=message.max_unscored if message.HasField("max_unscored") else None,
    )


def evaluate_request_to_v1(request: EvaluateRequest, field: str = "") -> evaluation_pb2.EvaluateRequest:
    """Encode an evaluation to run.

    Raises:
        InvalidField: a value cannot be sent: wrong type, too wide, no Unicode, or an option that is not JSON.
    """
    with sendable(child(field, "model")):
        model = model_ref_to_v1(request.model)
    with sendable(child(field, "sampling")):
        sampling = (
            None if request.sampling is None else sampling_params_to_v1(request.sampling, child(field, "sampling"))
        )
    with sendable(child(field, "limits")):
        limits = limits_to_v1(request.limits, child(field, "limits"))
    with sendable(child(field, "evaluators")):
        evaluators = [
            evaluator_spec_to_v1(spec, f"{child(field, 'evaluators')}[{index}]")
            for index, spec in enumerate(request.evaluators)
        ]
    dataset = dataset_to_v1(request.dataset, child(field, "dataset"))
    return made(
        evaluation_pb2.EvaluateRequest,
        field,
        evaluation_id=request.evaluation_id,
        run_id=request.run_id,
        step=request.step,
        model=model,
        evaluators=evaluators,
        dataset=dataset,
        sampling=sampling,
        limits=limits if limits.ListFields() else None,
        metric_prefix=request.metric_prefix,
        labels=request.labels,
        correlation_id=request.correlation_id,
    )


def evaluate_request_from_v1(message: evaluation_pb2.EvaluateRequest, field: str = "") -> EvaluateRequest:
    """Decode an evaluation to run, and check its structure.

    Raises:
        InvalidField: model, data set or evaluators are missing, or a value is out of range or too long.
    """
    _check_texts(message, field)
    for name in ("model", "dataset"):
        if not message.HasField(name):
            raise InvalidField(child(field, name), "is not given")
    if not message.evaluators:
        raise InvalidField(child(field, "evaluators"), "is empty, at least one is needed")
    if len(message.evaluators) > MAX_EVALUATORS:
        raise InvalidField(
            child(field, "evaluators"), f"has {len(message.evaluators)} entries, at most {MAX_EVALUATORS} are accepted"
        )
    sampling = None
    if message.HasField("sampling"):
        sampling = sampling_params_from_v1(message.sampling, child(field, "sampling"))
    return EvaluateRequest(
        evaluation_id=message.evaluation_id,
        run_id=message.run_id,
        step=message.step if message.HasField("step") else None,
        model=model_ref_from_v1(message.model, child(field, "model")),
        evaluators=tuple(
            evaluator_spec_from_v1(spec, f"{child(field, 'evaluators')}[{index}]")
            for index, spec in enumerate(message.evaluators)
        ),
        dataset=dataset_from_v1(message.dataset, child(field, "dataset")),
        sampling=sampling,
        limits=limits_from_v1(message.limits, child(field, "limits")),
        metric_prefix=message.metric_prefix,
        labels=labels_from_v1(message.labels, child(field, "labels")),
        correlation_id=message.correlation_id,
    )


def _check_texts(message: evaluation_pb2.EvaluateRequest, field: str) -> None:
    at_most_bytes(message.evaluation_id, MAX_ID_BYTES, child(field, "evaluation_id"))
    at_most_bytes(message.run_id, MAX_ID_BYTES, child(field, "run_id"))
    at_most_bytes(message.correlation_id, MAX_ID_BYTES, child(field, "correlation_id"))
    at_most_bytes(message.metric_prefix, MAX_NAME_BYTES, child(field, "metric_prefix"))


def labels_from_v1(labels: Mapping[str, str], field: str) -> dict[str, str]:
    """Decode labels, and check how many and how long they are."""
    if len(labels) > MAX_LABELS:
        raise InvalidField(field, f"has {len(labels)} entries, at most {MAX_LABELS} are accepted")
    for key, value in labels.items():
        at_most_bytes(key, MAX_LABEL_BYTES, entry(field, key))
        at_most_bytes(value, MAX_LABEL_BYTES, entry(field, key))
    return dict(labels.items())


def evaluator_info_to_v1(info: EvaluatorInfo) -> evaluation_pb2.EvaluatorInfo:
    """Encode an evaluator that the worker has; its schema travels as JSON text."""
    return evaluation_pb2.EvaluatorInfo(
        kind=info.kind,
        kinds=[_KIND.to_v1(kind) for kind in info.kinds],
        description=info.description,
        options_schema=json.dumps(info.options_schema, allow_nan=False),
        keys=dict(info.keys),
        unavailable=info.unavailable,
        score_goal=None if info.score_goal is None else goal_to_v1(info.score_goal),
    )


def evaluator_info_from_v1(message: evaluation_pb2.EvaluatorInfo, field: str) -> EvaluatorInfo:
    """Decode an evaluator that the worker has."""
    try:
        schema = json.loads(message.options_schema)
    except (ValueError, RecursionError) as error:
        raise InvalidField(child(field, "options_schema"), f"is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise InvalidField(child(field, "options_schema"), "is no JSON object")
    return EvaluatorInfo(
        kind=message.kind,
        kinds=_KIND.all_from_v1(message.kinds, child(field, "kinds")),
        description=message.description,
        options_schema=schema,
        keys=dict(message.keys),
        unavailable=message.unavailable,
        score_goal=goal_from_v1(message.score_goal, child(field, "score_goal")) if message.score_goal else None,
    )
