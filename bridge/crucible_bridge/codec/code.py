"""Programs to grade or to extract <-> v1. Responses of models travel as bytes, as in `codec.grade_items`."""

from __future__ import annotations

from crucible_bridge.codec.fields import child, of_type, sendable, several
from crucible_bridge.codec.generated import (
    code_grades_from_v1,
    code_grades_to_v1,
    code_limits_from_v1,
    code_limits_to_v1,
    code_test_from_v1,
    code_test_to_v1,
)
from crucible_bridge.codec.grade_items import response_from_v1, response_to_v1
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import (
    CodeItem,
    ExtractCodeRequest,
    GradeCodeRequest,
    bounds,
)
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "LANGUAGE",
    "code_grades_from_v1",
    "code_grades_to_v1",
    "code_item_from_v1",
    "code_item_to_v1",
    "code_test_from_v1",
    "code_test_to_v1",
    "extract_code_request_from_v1",
    "extract_code_request_to_v1",
    "grade_code_request_from_v1",
    "grade_code_request_to_v1",
]

(LANGUAGE,) = bounds.GRADE_CODE_REQUEST_LANGUAGE_ONE_OF
"""The one language of programs."""


def code_item_to_v1(item: CodeItem, field: str) -> pb.CodeItem:
    """Encode a program to grade; lone surrogates in a response are sent as the bytes they would be.

    Raises:
        InvalidField: it contains something other than text, or something that is not a test.
    """
    of_type(item, CodeItem, field)
    message = pb.CodeItem(response=response_to_v1(item.response, child(field, "response")))
    for name in ("id", "prefix", "problem_id"):
        with sendable(child(field, name)):
            setattr(message, name, getattr(item, name))
    path = child(field, "tests")
    if not isinstance(item.tests, tuple | list):
        raise InvalidField(path, f"is {type(item.tests).__name__}, not a sequence of tests")
    message.tests.extend(code_test_to_v1(test, f"{path}[{index}]") for index, test in enumerate(item.tests))
    return message


def code_item_from_v1(message: pb.CodeItem, field: str) -> CodeItem:
    """Decode a program to grade.

    Raises:
        InvalidField: it has no test, or one of them is malformed.
    """
    path = child(field, "tests")
    if not message.tests:
        raise InvalidField(path, "is empty, at least one test is needed")
    text, replaced = response_from_v1(message.response)
    return CodeItem(
        id=message.id,
        response=text,
        prefix=message.prefix,
        tests=tuple(code_test_from_v1(test, f"{path}[{index}]") for index, test in enumerate(message.tests)),
        problem_id=message.problem_id,
        replaced=replaced,
    )


def grade_code_request_to_v1(request: GradeCodeRequest) -> pb.GradeCodeRequest:
    """Encode programs to grade."""
    message = pb.GradeCodeRequest(limits=code_limits_to_v1(request.limits), language=LANGUAGE)
    message.items.extend(code_item_to_v1(item, f"items[{index}]") for index, item in enumerate(request.items))
    with sendable("k"):
        message.k.extend(request.k)
    with sendable("image"):
        message.image = request.image
    return message


def grade_code_request_from_v1(message: pb.GradeCodeRequest) -> GradeCodeRequest:
    """Decode programs to grade; at least one.

    Raises:
        InvalidField: an item or a bound is malformed, there is no item, or the language is another.
    """
    if not message.items:
        raise InvalidField("items", "is empty, at least one item is needed")
    _check_language(message.language)
    return GradeCodeRequest(
        items=tuple(code_item_from_v1(item, f"items[{index}]") for index, item in enumerate(message.items)),
        limits=code_limits_from_v1(message.limits, "limits"),
        k=tuple(message.k),
        image=message.image,
    )


def extract_code_request_to_v1(request: ExtractCodeRequest) -> pb.ExtractCodeRequest:
    """Encode responses to extract programs from.

    Raises:
        InvalidField: one of them, or a name, is no text.
    """
    message = pb.ExtractCodeRequest(language=LANGUAGE)
    message.responses.extend(
        response_to_v1(response, f"responses[{index}]") for index, response in enumerate(request.responses)
    )
    with sendable("names"):
        message.names.extend(several(request.names, "names"))
    return message


def extract_code_request_from_v1(message: pb.ExtractCodeRequest) -> ExtractCodeRequest:
    """Decode responses to extract programs from; at least one.

    Raises:
        InvalidField: there is none, a name is blank, or the language is another.
    """
    if not message.responses:
        raise InvalidField("responses", "is empty, at least one response is needed")
    _check_language(message.language)
    for index, name in enumerate(message.names):
        if not name.strip():
            raise InvalidField(f"names[{index}]", "is blank")
    texts, replaced = zip(*map(response_from_v1, message.responses))
    return ExtractCodeRequest(responses=texts, names=tuple(message.names), replaced=replaced if any(replaced) else ())


def _check_language(language: str) -> None:
    if language not in ("", LANGUAGE):
        raise InvalidField("language", f"is {clipped(language)}, programs are in {LANGUAGE!r}")
