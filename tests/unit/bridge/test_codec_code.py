"""Programs to grade on the wire: what is decoded equals what was encoded, what is malformed is refused by its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge import codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeGrades,
    CodeItem,
    CodeLimits,
    ExtractCodeRequest,
    ExtractedProgram,
    Grade,
    GradeCodeRequest,
    InputOutputTests,
    OutputComparison,
    ProblemCounts,
    StdioTest,
    Verdict,
    bounds,
)
from crucible_bridge.v1 import grading_pb2 as pb
from tests.tables import rows
from tests.unit.bridge import strategies as some

said = st.text().filter(str.strip)
sendable = some.text.filter(str.strip)
tolerances = st.floats(0, allow_nan=False, allow_infinity=False)
comparisons = st.builds(
    OutputComparison, by_token=st.booleans(), absolute_tolerance=tolerances, relative_tolerance=tolerances
)
tests = st.one_of(
    st.builds(Assertions, sendable),
    st.builds(StdioTest, stdin=some.text, stdout=some.text, comparison=comparisons),
    st.builds(InputOutputTests, json=sendable, comparison=comparisons),
    st.builds(CallTest, function=sendable, arguments_json=sendable, expected_json=sendable),
)
items = st.builds(
    CodeItem,
    id=some.text,
    response=some.text,
    prefix=some.text,
    tests=some.several(tests, min_size=1),
    problem_id=some.text,
    replaced=st.just(0),
)
LIMITS = {
    "timeout_ms": (bounds.CODE_LIMITS_TIMEOUT_MS_LEAST, bounds.CODE_LIMITS_TIMEOUT_MS_MOST),
    "memory_mb": (bounds.CODE_LIMITS_MEMORY_MB_LEAST, bounds.CODE_LIMITS_MEMORY_MB_MOST),
    "output_bytes": (bounds.CODE_LIMITS_OUTPUT_BYTES_LEAST, bounds.CODE_LIMITS_OUTPUT_BYTES_MOST),
}
limits = st.builds(CodeLimits, **{name: st.integers(*ends) for name, ends in LIMITS.items()})
counts = st.integers(0, 2**31 - 1)
grades = st.builds(
    CodeGrades,
    grades=some.several(
        st.builds(
            Grade, id=some.text, verdict=st.sampled_from([Verdict.CORRECT, Verdict.PARTIAL]), score=st.floats(0, 1)
        )
    ),
    problems=some.several(
        st.builds(ProblemCounts, problem_id=some.text, samples=counts, correct=counts, unscored=counts)
    ),
    metrics=some.metrics,
)
PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "test": (tests, lambda v: codec.code_test_to_v1(v, "x"), lambda m: codec.code_test_from_v1(m, "x")),
    "item": (items, lambda v: codec.code_item_to_v1(v, "x"), lambda m: codec.code_item_from_v1(m, "x")),
    "limits": (limits, codec.code_limits_to_v1, lambda m: codec.code_limits_from_v1(m, "x")),
    "request": (
        st.builds(
            GradeCodeRequest,
            items=some.several(items, min_size=1),
            limits=limits,
            k=some.several(st.integers(1, 9)),
            image=some.text,
        ),
        codec.grade_code_request_to_v1,
        codec.grade_code_request_from_v1,
    ),
    "grades": (grades, codec.code_grades_to_v1, codec.code_grades_from_v1),
    "extraction": (
        st.builds(ExtractCodeRequest, responses=some.several(some.text, min_size=1), names=some.several(sendable)),
        codec.extract_code_request_to_v1,
        codec.extract_code_request_from_v1,
    ),
    "programs": (
        some.several(
            st.builds(
                ExtractedProgram,
                program=some.text,
                extraction=some.text,
                reason=some.text,
                problem=some.optional(some.problems),
            )
        ),
        codec.extracted_programs_to_v1,
        codec.extracted_programs_from_v1,
    ),
}
TEST = pb.CodeTest(assertions="assert f()")
ITEM = pb.CodeItem(response=b"x", tests=[TEST])


def item(*given: pb.CodeTest) -> pb.GradeCodeRequest:
    """A request of one item."""
    return pb.GradeCodeRequest(items=[pb.CodeItem(tests=given)])


MALFORMED: dict[str, tuple[pb.GradeCodeRequest, str]] = {
    "no item": (pb.GradeCodeRequest(), "items"),
    "no test": (pb.GradeCodeRequest(items=[ITEM, pb.CodeItem(response=b"x")]), "items[1].tests"),
    "an empty test": (item(TEST, pb.CodeTest()), "items[0].tests[1]"),
    "blank assertions": (item(pb.CodeTest(assertions=" \n")), "items[0].tests[0].assertions"),
    "no function": (item(pb.CodeTest(call=pb.CallTest(expected_json="1"))), "items[0].tests[0].call.function"),
    "no value": (item(pb.CodeTest(call=pb.CallTest(function="f"))), "items[0].tests[0].call.expected_json"),
    "no pairs": (item(pb.CodeTest(input_output=pb.InputOutputTests(json=" "))), "items[0].tests[0].input_output.json"),
    "a tolerance below 0": (
        item(pb.CodeTest(stdio=pb.StdioTest(comparison=pb.OutputComparison(absolute_tolerance=-1.0)))),
        "items[0].tests[0].stdio.comparison.absolute_tolerance",
    ),
    "a tolerance that is no number": (
        item(
            pb.CodeTest(
                input_output=pb.InputOutputTests(
                    json="{}", comparison=pb.OutputComparison(relative_tolerance=float("nan"))
                )
            )
        ),
        "items[0].tests[0].input_output.comparison.relative_tolerance",
    ),
    "another language": (pb.GradeCodeRequest(items=[ITEM], language="ruby"), "language"),
}


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None)
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip through bytes is the identity."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)

    assert from_v1(type(message).FromString(message.SerializeToString())) == value


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
def test_decoding_is_total(data: bytes):
    """Whatever parses as a request decodes or is refused with a path."""
    try:
        decoded = codec.grade_code_request_from_v1(pb.GradeCodeRequest.FromString(data))
    except DecodeError:
        return
    except InvalidField as error:
        decoded = error.field

    assert decoded


@rows("name", MALFORMED)
def test_what_is_malformed_is_refused_at_its_field(name: str):
    """The error names the path of the first field that is wrong."""
    message, field = MALFORMED[name]

    with pytest.raises(InvalidField) as refused:
        codec.grade_code_request_from_v1(message)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.ExtractCodeRequest(), "responses"),
        (pb.ExtractCodeRequest(responses=[b"x"], names=["f", " "]), "names[1]"),
        (pb.ExtractCodeRequest(responses=[b"x"], language="ruby"), "language"),
    ],
)
def test_an_extraction_that_is_malformed_is_refused_at_its_field(message: pb.ExtractCodeRequest, field: str):
    """The error names the path of the first field that is wrong."""
    with pytest.raises(InvalidField) as refused:
        codec.extract_code_request_from_v1(message)

    assert refused.value.field == field


@pytest.mark.parametrize("name", LIMITS)
def test_bounds_are_bounded(name: str):
    """The ends are within, and what is beyond is refused."""
    for value, step in zip(LIMITS[name], (-1, 1)):
        taken = codec.code_limits_from_v1(pb.CodeLimits(**{name: value}), "limits")
        assert getattr(taken, name) == value
        with pytest.raises(InvalidField) as refused:
            codec.code_limits_from_v1(pb.CodeLimits(**{name: value + step}), "limits")
        assert refused.value.field == f"limits.{name}"


def test_what_is_not_said_has_its_default():
    """Bounds, language and the arguments of a call."""
    request = item(pb.CodeTest(call=pb.CallTest(function="f", expected_json="1")))

    decoded = codec.grade_code_request_from_v1(request)

    assert decoded.limits == CodeLimits()
    assert decoded.items[0].tests == (CallTest(function="f", expected_json="1"),)


def test_bytes_that_are_no_text_are_counted():
    """They become U+FFFD, and the item says how many did."""
    decoded = codec.code_item_from_v1(pb.CodeItem(response=b"a\xff\xfeb", tests=[TEST]), "x")

    assert (decoded.response, decoded.replaced) == ("a\ufffd\ufffdb", 2)


ANY: Any = CodeItem
UNSENDABLE = {
    "response": (ANY(response=b"x", tests=(Assertions("x"),)), "items[0].response"),
    "prefix": (ANY(response="x", prefix=1, tests=(Assertions("x"),)), "items[0].prefix"),
    "tests": (ANY(response="x", tests="assert f()"), "items[0].tests"),
    "a test": (ANY(response="x", tests=(Assertions("x"), "assert f()")), "items[0].tests[1]"),
    "half a character": (ANY(response="x", tests=(Assertions("\ud800"),)), "items[0].tests[0].assertions"),
}


@rows("name", UNSENDABLE)
def test_what_cannot_be_sent_is_refused_at_its_field(name: str):
    """It never leaves; the error says where it stands."""
    value, field = UNSENDABLE[name]

    with pytest.raises(InvalidField) as refused:
        codec.grade_code_request_to_v1(GradeCodeRequest(items=(value,)))

    assert refused.value.field == field
