"""Responses for a judge on the wire: what is decoded equals what was encoded, what is malformed is refused by path."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge import codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    DEFAULT_JUDGE_SAMPLING,
    MAX_CRITERION_CHARS,
    MAX_CRITERION_NAME_CHARS,
    MAX_CRITERION_SCORE,
    BatchLimits,
    CriterionScore,
    EmbeddedModel,
    Grade,
    GradeRubricRequest,
    RubricCriterion,
    RubricGrade,
    RubricGrades,
    RubricItem,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_bridge.v1 import models_pb2, types_pb2
from tests.tables import rows
from tests.unit.bridge import strategies as some

words = some.text.filter(str.strip)
names = st.text("abc xyz", min_size=1, max_size=9).map(str.strip).filter(bool)
counts = st.integers(0, 2**63 - 1)
criteria = st.builds(
    RubricCriterion,
    name=names,
    description=words,
    weight=st.floats(0.001, 1e6),
    min=st.floats(-100, 0),
    max=st.floats(1, 100),
)
items = st.builds(
    RubricItem,
    id=some.text,
    question=some.text,
    response=some.text,
    references=some.several(words),
    other=some.optional(some.text),
    prior=some.optional(st.sampled_from(Verdict)),
    replaced=st.just(0),
)
requests = st.builds(
    GradeRubricRequest,
    judge=some.models,
    items=some.several(items, min_size=1),
    criteria=st.lists(criteria, min_size=1, max_size=3, unique_by=lambda criterion: criterion.name).map(tuple),
    threshold=st.floats(0, 1),
    sampling=some.sampling_params,
    renderer=st.sampled_from(["auto", "raw", "tinker:qwen3"]),
    limits=st.builds(BatchLimits, concurrency=some.optional(some.positive), deadline_ms=some.optional(some.positive)),
)
grades = st.builds(
    RubricGrades,
    grades=some.several(
        st.builds(
            RubricGrade,
            grade=st.builds(
                Grade, id=some.text, verdict=st.sampled_from(Verdict), score=some.optional(st.floats(0, 1))
            ),
            criteria=some.several(
                st.builds(CriterionScore, name=names, score=some.finite, reason=some.text, clamped=st.booleans())
            ),
            prompt_tokens=some.optional(counts),
            completion_tokens=counts,
        )
    ),
    prompt_tokens=some.optional(counts),
    completion_tokens=counts,
    judge_fingerprint=some.text,
)
PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "criterion": (
        criteria,
        lambda v: codec.rubric_criterion_to_v1(v, "x"),
        lambda m: codec.rubric_criterion_from_v1(m, "x"),
    ),
    "item": (items, lambda v: codec.rubric_item_to_v1(v, "x"), lambda m: codec.rubric_item_from_v1(m, "x")),
    "request": (requests, codec.grade_rubric_request_to_v1, codec.grade_rubric_request_from_v1),
    "grades": (grades, lambda v: codec.rubric_grades_to_v1(v, ROOM), codec.rubric_grades_from_v1),
}
NAN = float("nan")
ROOM = 1 << 20


def asked(**fields: Any) -> pb.GradeRubricRequest:
    """A request that is in order, but for what is given."""
    whole: dict[str, Any] = {
        "judge": types_pb2.ModelRef(embedded="m"),
        "items": [pb.RubricItem(response=b"x")],
        "criteria": [criterion()],
    }
    return pb.GradeRubricRequest(**whole | fields)


def criterion(**fields: Any) -> pb.RubricCriterion:
    """A criterion that is in order, but for what is given."""
    given: dict[str, Any] = {"name": "clear", "description": "Is it?"} | fields
    return pb.RubricCriterion(**given)


MALFORMED: dict[str, tuple[pb.GradeRubricRequest, str]] = {
    "no judge": (asked(judge=None), "judge"),
    "a judge without a name": (asked(judge=types_pb2.ModelRef()), "judge"),
    "no item": (asked(items=[]), "items"),
    "no criterion": (asked(criteria=[]), "criteria"),
    "a blank reference": (asked(items=[pb.RubricItem(references=["a", " "])]), "items[0].references[1]"),
    "a prior that is none": (asked(items=[pb.RubricItem(prior=99)]), "items[0].prior"),  # pyright: ignore[reportArgumentType]
    "no name": (asked(criteria=[criterion(name="")]), "criteria[0].name"),
    "a name of two lines": (asked(criteria=[criterion(name="a\nb")]), "criteria[0].name"),
    "a name with a blank at its end": (asked(criteria=[criterion(name="a ")]), "criteria[0].name"),
    "a name with a slash": (asked(criteria=[criterion(name="a/b")]), "criteria[0].name"),
    "a name twice": (asked(criteria=[criterion(), criterion()]), "criteria[1].name"),
    "no description": (asked(criteria=[criterion(description=" ")]), "criteria[0].description"),
    "no weight": (asked(criteria=[criterion(weight=0)]), "criteria[0].weight"),
    "an endless weight": (asked(criteria=[criterion(weight=float("inf"))]), "criteria[0].weight"),
    "a lowest score that is none": (asked(criteria=[criterion(min=NAN)]), "criteria[0].min"),
    "a scale of nothing": (asked(criteria=[criterion(min=10)]), "criteria[0].max"),
    "an endless scale": (asked(criteria=[criterion(min=-1e308, max=1e308)]), "criteria[0].min"),
    "a scale that is too long": (asked(criteria=[criterion(max=MAX_CRITERION_SCORE + 1)]), "criteria[0].max"),
    "a threshold above 1": (asked(threshold=1.5), "threshold"),
    "a threshold that is none": (asked(threshold=NAN), "threshold"),
    "no tokens": (asked(sampling=types_pb2.SamplingParams()), "sampling.max_tokens"),
    "nothing at once": (asked(limits=models_pb2.BatchLimits(concurrency=0)), "limits.concurrency"),
}


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None)
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject) -> None:
    """The round trip through bytes is the identity."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)

    assert from_v1(type(message).FromString(message.SerializeToString())) == value


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
def test_decoding_is_total(data: bytes) -> None:
    """Whatever parses as a request decodes or is refused with a path."""
    try:
        decoded = codec.grade_rubric_request_from_v1(pb.GradeRubricRequest.FromString(data))
    except DecodeError:
        return
    except InvalidField as error:
        decoded = error.field

    assert decoded


@rows("name", MALFORMED)
def test_what_is_malformed_is_refused_at_its_field(name: str) -> None:
    """The error names the path of the first field that is wrong."""
    message, field = MALFORMED[name]

    with pytest.raises(InvalidField) as refused:
        codec.grade_rubric_request_from_v1(message)

    assert refused.value.field == field


@pytest.mark.parametrize(("key", "most"), [("name", MAX_CRITERION_NAME_CHARS), ("description", MAX_CRITERION_CHARS)])
def test_texts_of_a_criterion_are_bounded(key: str, most: int) -> None:
    """As many characters as are allowed pass, and one more is refused."""
    assert codec.rubric_criterion_from_v1(criterion(**{key: "x" * most}), "c")
    with pytest.raises(InvalidField) as refused:
        codec.rubric_criterion_from_v1(criterion(**{key: "x" * (most + 1)}), "c")
    assert refused.value.field == f"c.{key}"


def test_what_is_not_said_has_its_default() -> None:
    """Weight, scale, threshold, sampling, renderer and bounds."""
    decoded = codec.grade_rubric_request_from_v1(asked())

    expected = GradeRubricRequest(
        judge=EmbeddedModel("m"),
        items=(RubricItem(response="x"),),
        criteria=(RubricCriterion(name="clear", description="Is it?", weight=1, min=0, max=10),),
        threshold=0.5,
        sampling=DEFAULT_JUDGE_SAMPLING,
        renderer="auto",
    )
    assert decoded == expected


def test_bytes_that_are_no_text_are_counted() -> None:
    """Of both responses together; they become U+FFFD and cost the batch nothing."""
    item = codec.rubric_item_from_v1(pb.RubricItem(response=b"a\xff", other=b"\xfe\xfdb"), "x")

    assert (item.response, item.other, item.replaced) == ("a\ufffd", "\ufffd\ufffdb", 3)


def test_reasons_are_left_out_where_there_is_no_room() -> None:
    """Scores and tokens stay: they cannot be had again without paying for them."""
    said = CriterionScore(name="clear", score=7, reason="x" * 300)
    grade = RubricGrade(grade=Grade(verdict=Verdict.CORRECT, score=0.7), criteria=(said,), completion_tokens=9)
    grades = RubricGrades(grades=(grade,) * 10, completion_tokens=90)
    size = codec.rubric_grades_to_v1(grades, ROOM).ByteSize()

    fitting = codec.rubric_grades_from_v1(codec.rubric_grades_to_v1(grades, size))
    cut = codec.rubric_grades_from_v1(codec.rubric_grades_to_v1(grades, size - 1))

    assert fitting == grades
    assert {found.criteria[0] for found in cut.grades} == {dataclasses.replace(said, reason="")}
    assert (cut.grades[9].completion_tokens, cut.completion_tokens) == (9, 90)


def test_what_cannot_be_sent_is_refused_at_its_field() -> None:
    """A lone surrogate in a question, and one text for several references."""
    for wrong, field in (({"question": "\ud800"}, "x.question"), ({"references": "one"}, "x.references")):
        item = dataclasses.replace(RubricItem(response=""), **wrong)
        with pytest.raises(InvalidField) as refused:
            codec.rubric_item_to_v1(item, "x")
        assert refused.value.field == field
