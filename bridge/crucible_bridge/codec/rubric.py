"""Responses for a judge and what it says of them <-> v1. What models said travels as bytes, as in `codec.grading`."""

from __future__ import annotations

from crucible_bridge.codec import generated
from crucible_bridge.codec.enums import verdict_from_v1, verdict_to_v1
from crucible_bridge.codec.fields import child, made, sendable, several
from crucible_bridge.codec.generated import (
    batch_limits_from_v1,
    batch_limits_to_v1,
    rubric_grades_from_v1,
    sampling_params_from_v1,
    sampling_params_to_v1,
)
from crucible_bridge.codec.grading import response_from_v1, response_to_v1
from crucible_bridge.codec.models import model_ref_from_v1, model_ref_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    DEFAULT_JUDGE_SAMPLING,
    BatchLimits,
    GradeRubricRequest,
    RubricCriterion,
    RubricGrades,
    RubricItem,
    bounds,
)
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "grade_rubric_request_from_v1",
    "grade_rubric_request_to_v1",
    "rubric_criterion_from_v1",
    "rubric_criterion_to_v1",
    "rubric_grades_from_v1",
    "rubric_grades_to_v1",
    "rubric_item_from_v1",
    "rubric_item_to_v1",
]


def rubric_criterion_to_v1(criterion: RubricCriterion, field: str) -> pb.RubricCriterion:
    """Encode what is looked at.

    Raises:
        InvalidField: a value cannot be sent.
    """
    return made(
        pb.RubricCriterion,
        field,
        name=criterion.name,
        description=criterion.description,
        weight=criterion.weight,
        min=criterion.min,
        max=criterion.max,
    )


def rubric_criterion_from_v1(message: pb.RubricCriterion, field: str) -> RubricCriterion:
    """Decode what is looked at; raises InvalidField where `RubricCriterion.checked` does."""
    given = {name: getattr(message, name) for name in ("weight", "min", "max") if message.HasField(name)}
    return RubricCriterion(name=message.name, description=message.description, **given).checked(field)


def rubric_item_to_v1(item: RubricItem, field: str) -> pb.RubricItem:
    """Encode an item; lone surrogates in what a model said cross as the bytes they would be.

    Raises:
        InvalidField: it holds something else than text.
    """
    message = pb.RubricItem(response=response_to_v1(item.response, child(field, "response")))
    for name in ("id", "question"):
        with sendable(child(field, name)):
            setattr(message, name, getattr(item, name))
    with sendable(child(field, "references")):
        message.references.extend(several(item.references, child(field, "references")))
    if item.other is not None:
        message.other = response_to_v1(item.other, child(field, "other"))
    if item.prior is not None:
        message.prior = verdict_to_v1(item.prior)
    return message


def rubric_item_from_v1(message: pb.RubricItem, field: str) -> RubricItem:
    """Decode an item.

    Raises:
        InvalidField: a reference is blank, or `prior` is no verdict.
    """
    for index, reference in enumerate(message.references):
        if not reference.strip():
            raise InvalidField(f"{child(field, 'references')}[{index}]", "is blank")
    text, replaced = response_from_v1(message.response)
    other, replaced_there = response_from_v1(message.other) if message.HasField("other") else (None, 0)
    return RubricItem(
        id=message.id,
        question=message.question,
        response=text,
        references=tuple(message.references),
        other=other,
        prior=verdict_from_v1(message.prior, child(field, "prior")) if message.prior else None,
        replaced=replaced + replaced_there,
    )


def grade_rubric_request_to_v1(request: GradeRubricRequest) -> pb.GradeRubricRequest:
    """Encode a question to a judge, everything said.

    Raises:
        InvalidField: a value cannot be sent.
    """
    with sendable("judge"):
        message = pb.GradeRubricRequest(
            judge=model_ref_to_v1(request.judge),
            limits=None if request.limits == BatchLimits() else batch_limits_to_v1(request.limits),
        )
    with sendable("sampling"):
        message.sampling.CopyFrom(sampling_params_to_v1(request.sampling))
    message.items.extend(rubric_item_to_v1(item, f"items[{index}]") for index, item in enumerate(request.items))
    message.criteria.extend(
        rubric_criterion_to_v1(criterion, f"criteria[{index}]") for index, criterion in enumerate(request.criteria)
    )
    for name in ("threshold", "renderer"):
        with sendable(name):
            setattr(message, name, getattr(request, name))
    return message


def grade_rubric_request_from_v1(message: pb.GradeRubricRequest) -> GradeRubricRequest:
    """Decode a question to a judge: at least one item and one criterion.

    Raises:
        InvalidField: something is missing or malformed, or two criteria have the same name.
    """
    if not message.HasField("judge"):
        raise InvalidField("judge", "is not given")
    for name, count in (("items", len(message.items)), ("criteria", len(message.criteria))):
        if not count:
            raise InvalidField(name, "is empty, at least one is needed")
    threshold = message.threshold if message.HasField("threshold") else bounds.GRADE_RUBRIC_REQUEST_THRESHOLD_DEFAULT
    least, most = bounds.GRADE_RUBRIC_REQUEST_THRESHOLD_LEAST, bounds.GRADE_RUBRIC_REQUEST_THRESHOLD_MOST
    if not least <= threshold <= most:
        raise InvalidField("threshold", f"is {threshold}, it must lie in [{least:g}, {most:g}]")
    sampling = DEFAULT_JUDGE_SAMPLING
    if message.HasField("sampling"):
        sampling = sampling_params_from_v1(message.sampling, "sampling")
    return GradeRubricRequest(
        judge=model_ref_from_v1(message.judge, "judge"),
        items=tuple(rubric_item_from_v1(item, f"items[{index}]") for index, item in enumerate(message.items)),
        criteria=_criteria_from_v1(message),
        threshold=threshold,
        sampling=sampling,
        renderer=message.renderer or "auto",
        limits=batch_limits_from_v1(message.limits, "limits"),
    )


def rubric_grades_to_v1(grades: RubricGrades, max_bytes: int) -> pb.GradeRubricResponse:
    """Encode what a judge said; without its reasons where that would be more than so many bytes."""
    message = generated.rubric_grades_to_v1(grades)
    if message.ByteSize() > max_bytes:
        for grade in message.grades:
            for found in grade.criteria:
                found.ClearField("reason")
    return message


def _criteria_from_v1(message: pb.GradeRubricRequest) -> tuple[RubricCriterion, ...]:
    criteria: dict[str, RubricCriterion] = {}
    for index, given in enumerate(message.criteria):
        criterion = rubric_criterion_from_v1(given, f"criteria[{index}]")
        if criterion.name in criteria:
            raise InvalidField(f"criteria[{index}].name", f"is {criterion.name!r}, as another one's is")
        criteria[criterion.name] = criterion
    return tuple(criteria.values())
