"""Requests and replies of ModelService <-> v1.

A malformed item of a request decodes to its problem. A result for which a message has no room left is sent as a
problem. Neither affects the rest of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from crucible_bridge.codec.answer_room import kept_within
from crucible_bridge.codec.content import model_input_from_v1, model_input_to_v1
from crucible_bridge.codec.data import datum_from_v1, datum_to_v1
from crucible_bridge.codec.fields import at_least, child, one_of, sendable
from crucible_bridge.codec.generated import (
    batch_limits_from_v1,
    batch_limits_to_v1,
    forward_answer_from_v1,
    forward_item_from_v1,
    forward_item_to_v1,
    forward_output_to_v1,
    logprobs_answer_from_v1,
    logprobs_item_from_v1,
    logprobs_item_to_v1,
    model_ref_from_v1,
    model_ref_to_v1,
    sample_answer_from_v1,
    sample_item_from_v1,
    sample_item_to_v1,
    sampled_item_to_v1,
    sampling_params_from_v1,
    sampling_params_to_v1,
    sequence_logprobs_to_v1,
    teacher_answer_to_v1,
    usage_to_v1,
)
from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.types import (
    BatchLimits,
    ForwardAnswer,
    ForwardRequest,
    LogprobsAnswer,
    LogprobsRequest,
    ModelRef,
    Problem,
    SampleAnswer,
    SampleRequest,
    Teacher,
    Usage,
    bounds,
)
from crucible_bridge.v1 import models_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "batch_limits_from_v1",
    "batch_limits_to_v1",
    "forward_answer_from_v1",
    "forward_answer_to_v1",
    "forward_request_from_v1",
    "forward_request_to_v1",
    "logprobs_answer_from_v1",
    "logprobs_answer_to_v1",
    "logprobs_request_from_v1",
    "logprobs_request_to_v1",
    "sample_answer_from_v1",
    "sample_answer_to_v1",
    "sample_request_from_v1",
    "sample_request_to_v1",
]

M = TypeVar("M")
T = TypeVar("T")


def sample_request_to_v1(request: SampleRequest) -> pb.SampleRequest:
    """Encode a request for continuations.

    Raises:
        InvalidField: a value cannot be sent.
    """
    with sendable("sampling"):
        sampling = sampling_params_to_v1(request.sampling)
    return pb.SampleRequest(
        model=_model_to_v1(request.model),
        items=_each_to_v1(request.items, "items", sample_item_to_v1),
        sampling=sampling,
        limits=_limits_to_v1(request.limits),
        top_logprobs=request.top_logprobs,
    )


def sample_request_from_v1(message: pb.SampleRequest) -> SampleRequest:
    """Decode a request for continuations.

    Raises:
        InvalidField: model, sampling or limits are missing or wrong; a wrong item becomes its problem.
    """
    if not message.HasField("sampling"):
        raise InvalidField("sampling", "is not given")
    return SampleRequest(
        model=_model_from_v1(message),
        items=_each_from_v1(message.items, "items", sample_item_from_v1),
        sampling=sampling_params_from_v1(message.sampling, "sampling"),
        limits=batch_limits_from_v1(message.limits, "limits"),
        top_logprobs=_positive(message, "top_logprobs"),
    )


def logprobs_request_to_v1(request: LogprobsRequest) -> pb.ComputeLogprobsRequest:
    """Encode a request for log-probabilities.

    Raises:
        InvalidField: a value cannot be sent.
    """
    return pb.ComputeLogprobsRequest(
        model=None if request.model is None else _model_to_v1(request.model),
        sequences=_each_to_v1(request.sequences, "sequences", lambda item, field: model_input_to_v1(item)),
        limits=_limits_to_v1(request.limits),
        items=_each_to_v1(request.items, "items", logprobs_item_to_v1),
        top_k=request.top_k,
        last_n=request.last_n,
        add_special_tokens=request.add_special_tokens,
        teachers=_each_to_v1(request.teachers, "teachers", _teacher_to_v1),
    )


def logprobs_request_from_v1(message: pb.ComputeLogprobsRequest) -> LogprobsRequest:
    """Decode a request for log-probabilities.

    Raises:
        InvalidField: model, a teacher or a bound is missing or wrong; a wrong sequence becomes its problem.
    """
    _check_one_of(message, "sequences", "items")
    if message.teachers and message.HasField("model"):
        raise InvalidField("teachers", "is given together with model: give one of the two")
    return LogprobsRequest(
        model=None if message.teachers else _model_from_v1(message),
        sequences=_each_from_v1(message.sequences, "sequences", model_input_from_v1),
        limits=batch_limits_from_v1(message.limits, "limits"),
        items=_each_from_v1(message.items, "items", logprobs_item_from_v1),
        top_k=_positive(message, "top_k"),
        last_n=_positive(message, "last_n"),
        add_special_tokens=message.add_special_tokens,
        teachers=tuple(
            _teacher_from_v1(teacher, f"teachers[{index}]") for index, teacher in enumerate(message.teachers)
        ),
    )


def forward_request_to_v1(request: ForwardRequest) -> pb.ForwardRequest:
    """Encode a request for a forward pass.

    Raises:
        InvalidField: a value cannot be sent.
    """
    return pb.ForwardRequest(
        model=_model_to_v1(request.model),
        data=_each_to_v1(request.data, "data", lambda datum, field: datum_to_v1(datum)),
        limits=_limits_to_v1(request.limits),
        items=_each_to_v1(request.items, "items", forward_item_to_v1),
        train_on=request.train_on,
        add_special_tokens=request.add_special_tokens,
    )


def forward_request_from_v1(message: pb.ForwardRequest) -> ForwardRequest:
    """Decode a request for a forward pass.

    Raises:
        InvalidField: model, limits or `train_on` are missing or wrong; a wrong datum becomes its problem.
    """
    _check_one_of(message, "data", "items")
    if message.train_on:
        one_of(message.train_on, bounds.FORWARD_REQUEST_TRAIN_ON_ONE_OF, "train_on")
    return ForwardRequest(
        model=_model_from_v1(message),
        data=_each_from_v1(message.data, "data", datum_from_v1),
        limits=batch_limits_from_v1(message.limits, "limits"),
        items=_each_from_v1(message.items, "items", forward_item_from_v1),
        train_on=message.train_on,
        add_special_tokens=message.add_special_tokens,
    )


def sample_answer_to_v1(answer: SampleAnswer, max_bytes: int) -> pb.SampleResponse:
    """Encode continuations into a message of at most so many bytes."""
    items = kept_within(max_bytes, pb.SampledItem, map(sampled_item_to_v1, answer.items), len(answer.items))
    return pb.SampleResponse(items=items, model_fingerprint=answer.model_fingerprint, usage=_usage_to_v1(answer.usage))


def logprobs_answer_to_v1(answer: LogprobsAnswer, max_bytes: int) -> pb.ComputeLogprobsResponse:
    """Encode log-probabilities into a message of at most so many bytes."""
    return pb.ComputeLogprobsResponse(
        sequences=kept_within(
            max_bytes, pb.SequenceLogprobs, map(sequence_logprobs_to_v1, answer.sequences), len(answer.sequences)
        ),
        model_fingerprint=answer.model_fingerprint,
        usage=_usage_to_v1(answer.usage),
        teachers=map(teacher_answer_to_v1, answer.teachers),
    )


def forward_answer_to_v1(answer: ForwardAnswer, max_bytes: int) -> pb.ForwardResponse:
    """Encode the outputs of a forward pass into a message of at most so many bytes."""
    return pb.ForwardResponse(
        outputs=kept_within(
            max_bytes, pb.ForwardOutput, map(forward_output_to_v1, answer.outputs), len(answer.outputs)
        ),
        model_fingerprint=answer.model_fingerprint,
        usage=_usage_to_v1(answer.usage),
    )


def _usage_to_v1(usage: Usage | None) -> types_pb2.Usage | None:
    return None if usage is None else usage_to_v1(usage)


def _limits_to_v1(limits: BatchLimits) -> pb.BatchLimits | None:
    return None if limits == BatchLimits() else batch_limits_to_v1(limits)


def _check_one_of(message: Any, first: str, second: str) -> None:
    """Refuse a request that has both of two lists; one that has neither is refused where its items are counted."""
    if getattr(message, first) and getattr(message, second):
        raise InvalidField(second, f"is given together with {first}: give one of the two")


def _positive(message: Any, name: str, field: str = "") -> int | None:
    """A number from 1, None if it is absent."""
    if not message.HasField(name):
        return None
    at_least(value := getattr(message, name), 1, child(field, name))
    return value


def _teacher_to_v1(teacher: Teacher, field: str) -> pb.Teacher:
    with sendable(child(field, "model")):
        model = model_ref_to_v1(teacher.model)
    return pb.Teacher(model=model, weight=teacher.weight, items=teacher.items)


def _teacher_from_v1(message: pb.Teacher, field: str) -> Teacher:
    weight = message.weight if message.HasField("weight") else 1.0
    if not 0 < weight < math.inf:
        raise InvalidField(child(field, "weight"), f"is {weight}, a finite number above 0 is needed")
    return Teacher(model=_model_from_v1(message, field), weight=weight, items=tuple(message.items))


def _model_to_v1(model: ModelRef) -> types_pb2.ModelRef:
    with sendable("model"):
        return model_ref_to_v1(model)


def _model_from_v1(message: Any, field: str = "") -> ModelRef:
    if not message.HasField("model"):
        raise InvalidField(child(field, "model"), "is not given")
    return model_ref_from_v1(message.model, child(field, "model"))


def _each_to_v1(items: Iterable[T | Problem], field: str, encode: Callable[[T, str], M]) -> list[M]:
    messages: list[M] = []
    for index, item in enumerate(items):
        place = f"{field}[{index}]"
        if isinstance(item, Problem):
            raise InvalidField(place, f"cannot be sent: {item.message}")
        with sendable(place):
            messages.append(encode(item, place))
    return messages


def _each_from_v1(messages: Sequence[M], field: str, decode: Callable[[M, str], T]) -> tuple[T | Problem, ...]:
    return tuple(_or_problem(message, f"{field}[{index}]", decode) for index, message in enumerate(messages))


def _or_problem(message: M, field: str, decode: Callable[[M, str], T]) -> T | Problem:
    try:
        return decode(message, field)
    except InvalidField as error:
        return problem_of(error)
