"""Items to grade <-> v1.

Responses of models travel as bytes. Decoding replaces bytes that are not UTF-8 by U+FFFD and counts them in the item.
"""

from __future__ import annotations

from crucible_bridge.codec.enums import verdict_from_v1, verdict_to_v1
from crucible_bridge.codec.fields import child, of_type, sendable, several
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Assertions, GradeItem, RubricItem
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "assertions_from_v1",
    "grade_item_from_v1",
    "grade_item_to_v1",
    "response_from_v1",
    "response_to_v1",
    "rubric_item_from_v1",
    "rubric_item_to_v1",
]

_REPLACEMENT = "\ufffd"


def grade_item_to_v1(item: GradeItem, field: str) -> pb.GradeItem:
    """Encode an item; lone surrogates in a response are sent as the bytes they would be.

    Raises:
        InvalidField: it contains something other than text, or both a response and an answer, or neither.
    """
    of_type(item, GradeItem, field)
    if (item.response is None) == (item.answer is None):
        raise InvalidField(
            field, f"has {'neither response nor' if item.answer is None else 'both response and'} answer"
        )
    message = pb.GradeItem()
    if item.id:
        with sendable(child(field, "id")):
            message.id = item.id
    if item.response is not None:
        message.response = response_to_v1(item.response, child(field, "response"))
    if item.answer is not None:
        message.answer = response_to_v1(item.answer, child(field, "answer"))
    path = child(field, "targets")
    with sendable(path):
        targets = tuple(several(item.targets, child(field, "targets")))
    for index, target in enumerate(targets):
        if not isinstance(target, str):  # bytes would be accepted as text
            raise InvalidField(f"{path}[{index}]", f"is {type(target).__name__}, not text")
        with sendable(f"{path}[{index}]"):
            message.targets.append(target)
    return message


def grade_item_from_v1(message: pb.GradeItem, field: str, *, targets_needed: bool = True) -> GradeItem:
    """Decode an item of grading.

    Raises:
        InvalidField: it has neither a response nor an answer, or lacks a needed target.
    """
    kind = message.WhichOneof("candidate")
    if kind is None:
        raise InvalidField(field, "has neither response nor answer")
    targets = tuple(message.targets)
    if targets_needed and not targets:
        raise InvalidField(child(field, "targets"), "is empty, at least one target is needed")
    if kind == "response":
        text, replaced = response_from_v1(message.response)
        return GradeItem(id=message.id, response=text, targets=targets, replaced=replaced)
    text, replaced = response_from_v1(message.answer)
    return GradeItem(id=message.id, answer=text, targets=targets, replaced=replaced)


def assertions_from_v1(source: str, field: str) -> Assertions:
    """Decode assertions; raises InvalidField if they are blank."""
    if not source.strip():
        raise InvalidField(field, "is blank")
    return Assertions(source)


def rubric_item_to_v1(item: RubricItem, field: str) -> pb.RubricItem:
    """Encode an item; lone surrogates in a response are sent as the bytes they would be.

    Raises:
        InvalidField: it contains something other than text.
    """
    of_type(item, RubricItem, field)
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


def response_to_v1(text: str, field: str) -> bytes:
    """Encode a model's response; half a surrogate pair becomes the three bytes that are not UTF-8.

    Raises:
        InvalidField: it is no text.
    """
    with sendable(field):
        return text.encode("utf-8", "surrogatepass")


def response_from_v1(data: bytes) -> tuple[str, int]:
    """Decode a model's response: text, and the number of U+FFFD in it that replace bytes that were not UTF-8."""
    try:
        return data.decode(), 0
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        # A U+FFFD that the response itself has is complete: its first byte never continues another character.
        return text, text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
