"""Programs to grade or to extract, and what is found of them <-> v1.

What models said travels as bytes, as in `codec.grading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from crucible_bridge.codec.fields import (
    child,
    each_decoded,
    finite_from_zero,
    made,
    sendable,
    several,
    within,
)
from crucible_bridge.codec.generated import (
    code_grades_from_v1,
    code_grades_to_v1,
    extracted_program_from_v1,
    extracted_program_to_v1,
)
from crucible_bridge.codec.grading import response_from_v1, response_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeItem,
    CodeLimits,
    CodeTest,
    ExtractCodeRequest,
    ExtractedProgram,
    GradeCodeRequest,
    InputOutputTests,
    OutputComparison,
    StdioTest,
    bounds,
)
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "CODE_LIMITS",
    "LANGUAGE",
    "code_grades_from_v1",
    "code_grades_to_v1",
    "code_item_from_v1",
    "code_item_to_v1",
    "code_limits_from_v1",
    "code_limits_to_v1",
    "code_test_from_v1",
    "code_test_to_v1",
    "extract_code_request_from_v1",
    "extract_code_request_to_v1",
    "extracted_programs_from_v1",
    "extracted_programs_to_v1",
    "grade_code_request_from_v1",
    "grade_code_request_to_v1",
]

LANGUAGE = "python3"
"""The one language of programs."""

CODE_LIMITS: Mapping[str, tuple[int, int]] = {
    "timeout_ms": (bounds.CODE_LIMITS_TIMEOUT_MS_LEAST, bounds.CODE_LIMITS_TIMEOUT_MS_MOST),
    "memory_mb": (bounds.CODE_LIMITS_MEMORY_MB_LEAST, bounds.CODE_LIMITS_MEMORY_MB_MOST),
    "output_bytes": (bounds.CODE_LIMITS_OUTPUT_BYTES_LEAST, bounds.CODE_LIMITS_OUTPUT_BYTES_MOST),
}
"""What may be asked for, from and to, by the field of `CodeLimits`."""


def code_test_to_v1(test: CodeTest, field: str) -> pb.CodeTest:
    """Encode a test of a program.

    Raises:
        InvalidField: it is none, or holds what is no text.
    """
    match test:
        case Assertions(source=source):
            return made(pb.CodeTest, field, assertions=source)
        case StdioTest(stdin=stdin, stdout=stdout):
            path = child(field, "stdio")
            how = _comparison_to_v1(test.comparison, child(path, "comparison"))
            return pb.CodeTest(stdio=made(pb.StdioTest, path, stdin=stdin, stdout=stdout, comparison=how))
        case InputOutputTests(json=source):
            path = child(field, "input_output")
            how = _comparison_to_v1(test.comparison, child(path, "comparison"))
            return pb.CodeTest(input_output=made(pb.InputOutputTests, path, json=source, comparison=how))
        case CallTest(function=function, arguments_json=arguments, expected_json=expected):
            path = child(field, "call")
            call = made(pb.CallTest, path, function=function, arguments_json=arguments, expected_json=expected)
            return pb.CodeTest(call=call)
        case unknown:
            known = ", ".join(kind.__name__ for kind in get_args(CodeTest))
            raise InvalidField(field, f"is {unknown!r:.60}, which is no test; known are: {known}")


def code_test_from_v1(message: pb.CodeTest, field: str) -> CodeTest:
    """Decode a test of a program.

    Raises:
        InvalidField: it tests nothing, or a call names no function or no value.
    """
    match message.WhichOneof("test"):
        case "assertions":
            if not message.assertions.strip():
                raise InvalidField(child(field, "assertions"), "is blank")
            return Assertions(message.assertions)
        case "stdio":
            how = _comparison_from_v1(message.stdio, child(field, "stdio"))
            return StdioTest(stdin=message.stdio.stdin, stdout=message.stdio.stdout, comparison=how)
        case "input_output":
            if not message.input_output.json.strip():
                raise InvalidField(child(field, "input_output.json"), "is empty")
            how = _comparison_from_v1(message.input_output, child(field, "input_output"))
            return InputOutputTests(json=message.input_output.json, comparison=how)
        case "call":
            call = message.call
            for name, text in (("function", call.function), ("expected_json", call.expected_json)):
                if not text.strip():
                    raise InvalidField(child(field, f"call.{name}"), "is empty")
            arguments = call.arguments_json or "[]"
            return CallTest(function=call.function, arguments_json=arguments, expected_json=call.expected_json)
        case _:
            raise InvalidField(field, "names no test")


def _comparison_to_v1(comparison: OutputComparison, field: str) -> pb.OutputComparison | None:
    if not isinstance(comparison, OutputComparison):
        raise InvalidField(
            field,
            f"is {type(comparison).__name__}, must be an OutputComparison, such as OutputComparison(by_token=True)",
        )
    if comparison == OutputComparison():
        return None
    return made(
        pb.OutputComparison,
        field,
        by_token=comparison.by_token,
        absolute_tolerance=comparison.absolute_tolerance,
        relative_tolerance=comparison.relative_tolerance,
    )


def _comparison_from_v1(message: pb.StdioTest | pb.InputOutputTests, field: str) -> OutputComparison:
    how, path = message.comparison, child(field, "comparison")
    return OutputComparison(
        by_token=how.by_token,
        absolute_tolerance=finite_from_zero(how.absolute_tolerance, child(path, "absolute_tolerance")),
        relative_tolerance=finite_from_zero(how.relative_tolerance, child(path, "relative_tolerance")),
    )


def code_item_to_v1(item: CodeItem, field: str) -> pb.CodeItem:
    """Encode a program to grade; lone surrogates in what a model said cross as the bytes they would be.

    Raises:
        InvalidField: it holds something else than text, or what is no test.
    """
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


def code_limits_to_v1(limits: CodeLimits) -> pb.CodeLimits:
    """Encode bounds, each said.

    Raises:
        InvalidField: one is no number that can be sent.
    """
    if not isinstance(limits, CodeLimits):
        raise InvalidField(
            "limits", f"is {type(limits).__name__}, must be a CodeLimits, such as CodeLimits(memory_mb=256)"
        )
    return made(pb.CodeLimits, "limits", **{name: getattr(limits, name) for name in CODE_LIMITS})


def code_limits_from_v1(message: pb.CodeLimits, field: str) -> CodeLimits:
    """Decode bounds; those that are not said are those of `CodeLimits`.

    Raises:
        InvalidField: one is outside of `CODE_LIMITS`.
    """
    said = {name.name: value for name, value in message.ListFields()}
    for name, value in said.items():
        within(value, *CODE_LIMITS[name], child(field, name))
    return CodeLimits(**said)


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
    """Encode responses to take programs from.

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
    """Decode responses to take programs from; at least one.

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


def extracted_programs_to_v1(programs: tuple[ExtractedProgram, ...]) -> pb.ExtractCodeResponse:
    """Encode the programs inside responses."""
    return pb.ExtractCodeResponse(programs=map(extracted_program_to_v1, programs))


def extracted_programs_from_v1(message: pb.ExtractCodeResponse) -> tuple[ExtractedProgram, ...]:
    """Decode the programs inside responses."""
    return each_decoded(extracted_program_from_v1, message.programs, "programs")


def _check_language(language: str) -> None:
    if language not in ("", LANGUAGE):
        raise InvalidField("language", f"is {language[:60]!r}, programs are in {LANGUAGE!r}")
