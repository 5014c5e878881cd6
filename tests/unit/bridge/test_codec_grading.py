"""GradingService on the wire: round trips, what is refused and where, bytes that are no text."""

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
    BoxedForm,
    ChoiceScorer,
    ExactComparison,
    ExtractAnswerRequest,
    ExtractedAnswer,
    FormatScorer,
    Grade,
    GradeItem,
    GradeMathRequest,
    JsonSchemaForm,
    MarksForm,
    MathGrades,
    MathPolicy,
    NumericScorer,
    RegexScorer,
    ScoreOptions,
    ScoreRequest,
    TextScorer,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from tests.tables import rows
from tests.unit.bridge import strategies as some

targets = some.several(some.text, min_size=1)
items = st.builds(GradeItem, id=some.text, response=some.text, targets=targets) | st.builds(
    GradeItem, id=some.text, answer=some.text, targets=targets
)
grades = st.builds(
    Grade,
    id=some.text,
    verdict=st.sampled_from(Verdict),
    score=some.optional(some.finite),
    extracted=some.text,
    extraction=some.text,
    method=some.text,
    reason=some.text,
    duration_ns=st.integers(0, 2**63 - 1),
    problem=some.optional(some.problems),
)
policies = st.builds(
    MathPolicy,
    rounding_digits=st.integers(0, codec.MAX_ROUNDING_DIGITS),
    **{rule.name: st.booleans() for rule in dataclasses.fields(MathPolicy) if rule.type == "bool"},
)
tolerances = st.floats(0, allow_nan=False, allow_infinity=False)
forms = (
    st.just(BoxedForm())
    | st.builds(MarksForm, some.several(some.name, min_size=1))
    | st.builds(JsonSchemaForm, some.text)
)
scorers = (
    st.builds(TextScorer, kind=st.sampled_from(("exact_match", "contains", "f1", "bleu", "rouge")))
    | st.builds(TextScorer, kind=st.just("exact_match"), compare=st.sampled_from(ExactComparison))
    | st.builds(
        TextScorer, kind=st.just("exact_match"), compare=st.just(ExactComparison.LIST), ordered_lists=st.booleans()
    )
    | st.builds(RegexScorer, full=st.booleans())
    | st.builds(NumericScorer, absolute_tolerance=tolerances, relative_tolerance=tolerances)
    | st.builds(ChoiceScorer, choices=targets)
    | st.builds(FormatScorer, forms)
)
thresholds = some.optional(st.floats(0, 1))
options = st.builds(ScoreOptions, scorer=scorers, threshold=thresholds) | st.builds(
    ScoreOptions,
    grader=some.name,
    grader_options=st.dictionaries(some.name, st.booleans() | some.text | st.integers(0, 9), max_size=2),
    threshold=thresholds,
)

PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "item": (items, lambda v: codec.grade_item_to_v1(v, "x"), lambda m: codec.grade_item_from_v1(m, "x")),
    "policy": (policies, codec.math_policy_to_v1, lambda m: codec.math_policy_from_v1(m, "x")),
    "math": (
        st.builds(GradeMathRequest, items=some.several(items, min_size=1), policy=policies),
        codec.grade_math_request_to_v1,
        codec.grade_math_request_from_v1,
    ),
    "extract": (
        st.builds(ExtractAnswerRequest, responses=targets),
        codec.extract_answer_request_to_v1,
        codec.extract_answer_request_from_v1,
    ),
    "options": (options, codec.score_options_to_v1, lambda m: codec.score_options_from_v1(m, "x")),
    "score": (
        st.builds(ScoreRequest, items=some.several(items, min_size=1), options=options),
        codec.score_request_to_v1,
        codec.score_request_from_v1,
    ),
    "grade": (grades, codec.grade_to_v1, lambda m: codec.grade_from_v1(m, "x")),
    "math_grades": (
        st.builds(MathGrades, grades=some.several(grades), policy_version=some.text),
        codec.math_grades_to_v1,
        codec.math_grades_from_v1,
    ),
    "scores": (some.several(grades), codec.scores_to_v1, codec.scores_from_v1),
    "answers": (
        some.several(
            st.builds(
                ExtractedAnswer,
                answer=some.text,
                extraction=some.text,
                reason=some.text,
                problem=some.optional(some.problems),
            )
        ),
        codec.extracted_answers_to_v1,
        codec.extracted_answers_from_v1,
    ),
}
REQUESTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "math": (pb.GradeMathRequest, codec.grade_math_request_from_v1),
    "extract": (pb.ExtractAnswerRequest, codec.extract_answer_request_from_v1),
    "score": (pb.ScoreRequest, codec.score_request_from_v1),
}

ITEM = pb.GradeItem(answer=b"1", targets=["1"])
anything: Any = pb
unknown_number: Any = 77
MALFORMED: list[tuple[Callable[[Any], Any], Any, str]] = [
    (codec.grade_math_request_from_v1, pb.GradeMathRequest(), "items"),
    (codec.grade_math_request_from_v1, pb.GradeMathRequest(items=[ITEM, pb.GradeItem(targets=["1"])]), "items[1]"),
    (codec.grade_math_request_from_v1, pb.GradeMathRequest(items=[pb.GradeItem(answer=b"")]), "items[0].targets"),
    (
        codec.grade_math_request_from_v1,
        pb.GradeMathRequest(items=[ITEM], policy=pb.MathPolicy(rounding_digits=-1)),
        "policy.rounding_digits",
    ),
    (
        codec.grade_math_request_from_v1,
        pb.GradeMathRequest(items=[ITEM], policy=pb.MathPolicy(rounding_digits=codec.MAX_ROUNDING_DIGITS + 1)),
        "policy.rounding_digits",
    ),
    (codec.extract_answer_request_from_v1, pb.ExtractAnswerRequest(), "responses"),
    (codec.score_request_from_v1, pb.ScoreRequest(items=[ITEM]), "options"),
    *(
        (codec.score_request_from_v1, pb.ScoreRequest(items=[ITEM], options=wrong), f"options.{field}")
        for wrong, field in (
            (pb.ScoreOptions(f1=pb.TextScorer(compare=pb.EXACT_COMPARISON_NUMBER)), "f1.compare"),
            (pb.ScoreOptions(exact_match=pb.TextScorer(compare=unknown_number)), "exact_match.compare"),
            (
                pb.ScoreOptions(exact_match=pb.TextScorer(compare=pb.EXACT_COMPARISON_UNSPECIFIED)),
                "exact_match.compare",
            ),
            (pb.ScoreOptions(exact_match=pb.TextScorer(ordered_lists=True)), "exact_match.ordered_lists"),
            (pb.ScoreOptions(contains=pb.TextScorer(ordered_lists=True)), "contains.ordered_lists"),
        )
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(format=pb.FormatScorer())),
        "options.format",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(format=pb.FormatScorer(boxed=False))),
        "options.format.boxed",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(format=pb.FormatScorer(marks=pb.Marks()))),
        "options.format.marks.marks",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(format=pb.FormatScorer(marks=pb.Marks(marks=["a", ""])))),
        "options.format.marks.marks",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(multiple_choice=pb.ChoiceScorer())),
        "options.multiple_choice.choices",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(numeric=pb.NumericScorer(absolute_tolerance=-1))),
        "options.numeric.absolute_tolerance",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(
            items=[ITEM], options=pb.ScoreOptions(numeric=pb.NumericScorer(relative_tolerance=float("nan")))
        ),
        "options.numeric.relative_tolerance",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(regex=pb.RegexScorer(), threshold=1.5)),
        "options.threshold",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[ITEM], options=pb.ScoreOptions(regex=pb.RegexScorer(), threshold=float("nan"))),
        "options.threshold",
    ),
    (
        codec.score_request_from_v1,
        pb.ScoreRequest(items=[pb.GradeItem(answer=b"")], options=pb.ScoreOptions(regex=pb.RegexScorer())),
        "items[0].targets",
    ),
    (codec.math_grades_from_v1, pb.GradeMathResponse(grades=[pb.Grade()]), "grades[0].verdict"),
    (codec.scores_from_v1, anything.ScoreResponse(grades=[pb.Grade(verdict=99)]), "grades[0].verdict"),  # pyright: ignore
    (codec.scores_from_v1, anything.ScoreResponse(grades=[pb.Grade(verdict=1, score=float("inf"))]), "grades[0].score"),  # pyright: ignore
]
UNSENDABLE: list[tuple[Callable[[Any], Any], Any, str]] = [
    (codec.grade_math_request_to_v1, GradeMathRequest(items=(GradeItem(targets=("1",)),)), "items[0]"),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer="1", response="1", targets=("1",)),)),
        "items[0]",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer=1, targets=("1",)),)),  # pyright: ignore[reportArgumentType]
        "items[0].answer",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(response=b"1", targets=("1",)),)),  # pyright: ignore[reportArgumentType]
        "items[0].response",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(id=1, answer="1", targets=("1",)),)),  # pyright: ignore[reportArgumentType]
        "items[0].id",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer="1", targets=("1", b"1")),)),  # pyright: ignore[reportArgumentType]
        "items[0].targets[1]",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer="1", targets=None),)),  # pyright: ignore[reportArgumentType]
        "items[0].targets",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer="1", targets="1"),)),  # pyright: ignore[reportArgumentType]
        "items[0].targets",
    ),
    (
        codec.grade_math_request_to_v1,
        GradeMathRequest(items=(GradeItem(answer="1", targets=("\ud800",)),)),
        "items[0].targets[0]",
    ),
    (codec.math_policy_to_v1, MathPolicy(rounding_digits=2**40), "policy.rounding_digits"),
    (codec.math_policy_to_v1, MathPolicy(rounding_digits=True), "policy.rounding_digits"),
    (codec.math_policy_to_v1, MathPolicy(degrees=1), "policy.degrees"),  # pyright: ignore[reportArgumentType]
    (codec.math_policy_to_v1, {"degrees": False}, "policy"),
    (codec.extract_answer_request_to_v1, ExtractAnswerRequest(responses=("a", None)), "responses[1]"),  # pyright: ignore
    (codec.score_options_to_v1, ScoreOptions(scorer="f1"), "options"),  # pyright: ignore[reportArgumentType]
    (codec.score_options_to_v1, ScoreOptions(scorer=TextScorer(kind="f2")), "options"),  # pyright: ignore
    (
        codec.score_options_to_v1,
        ScoreOptions(scorer=TextScorer(kind="exact_match", compare="set")),  # pyright: ignore
        "options.exact_match.compare",
    ),
    (codec.score_options_to_v1, ScoreOptions(scorer=ChoiceScorer(choices="ab")), "options.multiple_choice.choices"),  # pyright: ignore
    (codec.score_options_to_v1, ScoreOptions(scorer=FormatScorer("boxed")), "options"),  # pyright: ignore
]


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None)
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip through bytes is the identity, absent values as None."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)

    assert from_v1(type(message).FromString(message.SerializeToString())) == value


@pytest.mark.parametrize("name", REQUESTS)
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
def test_decoding_is_total(name: str, data: bytes):
    """Whatever parses as a request decodes or is refused with a path, and nothing else happens."""
    message, from_v1 = REQUESTS[name]
    try:
        decoded = from_v1(message.FromString(data))
    except DecodeError:
        return
    except InvalidField as error:
        decoded = error.field

    assert decoded


@rows(("from_v1", "message", "field"), MALFORMED, ids=[field for _, _, field in MALFORMED])
def test_what_is_malformed_is_refused_at_its_field(from_v1: Callable[[Any], Any], message: Any, field: str):
    """The error names the path of the first field that is wrong."""
    with pytest.raises(InvalidField) as refused:
        from_v1(message)

    assert refused.value.field == field


@rows(("to_v1", "value", "field"), UNSENDABLE)
def test_what_cannot_be_sent_is_refused_at_its_field(to_v1: Callable[[Any], Any], value: Any, field: str):
    """A value of the wrong type, or too much of one, never leaves; the error says where it stands."""
    with pytest.raises(InvalidField) as refused:
        to_v1(value)

    assert refused.value.field == field


def test_the_largest_rounding_is_accepted():
    """The limit itself is within."""
    message = pb.MathPolicy(rounding_digits=codec.MAX_ROUNDING_DIGITS)

    assert codec.math_policy_from_v1(message, "policy").rounding_digits == codec.MAX_ROUNDING_DIGITS


def test_an_absent_policy_is_the_default_one():
    """A rule that is not said has its default; one that is said false is false."""
    assert codec.math_policy_from_v1(pb.MathPolicy(), "policy") == MathPolicy()
    assert codec.math_policy_from_v1(pb.MathPolicy(degrees=False), "policy") == MathPolicy(degrees=False)


def test_a_format_needs_no_targets():
    """The form of a response is judged by itself."""
    message = pb.ScoreRequest(
        items=[pb.GradeItem(response=b"\\boxed{1}")], options=pb.ScoreOptions(format=pb.FormatScorer(boxed=True))
    )

    assert codec.score_request_from_v1(message).items == (GradeItem(response="\\boxed{1}"),)


@given(st.binary(max_size=30))
def test_bytes_that_are_no_text_are_replaced_and_counted(data: bytes):
    """Each U+FFFD that stands for broken bytes is counted, those that were written as such are not."""
    item = codec.grade_item_from_v1(pb.GradeItem(answer=data, targets=["1"]), "x")
    extract = codec.extract_answer_request_from_v1(pb.ExtractAnswerRequest(responses=[data]))

    assert item.text == extract.responses[0] == data.decode(errors="replace")
    assert item.text.count("\ufffd") - item.replaced == data.count("\ufffd".encode())
    assert (item.replaced > 0) == bool(extract.replaced)


def test_an_empty_answer_is_an_answer():
    """Nothing said is told apart from nothing sent."""
    item = codec.grade_item_from_v1(pb.GradeItem(answer=b"", targets=["1"]), "x")

    assert (item.answer, item.response) == ("", None)


def test_lone_surrogates_cross_as_broken_bytes():
    """A tokenizer's broken text never makes an item unsendable, and the worker sees that it is broken."""
    message = codec.grade_item_to_v1(GradeItem(response="a\ud800", targets=("a",)), "x")

    assert codec.grade_item_from_v1(message, "x").replaced == 3


def test_surrogates_in_grades_become_replacement_characters():
    """What a grader quotes never makes a grade unsendable."""
    grade = Grade(verdict=Verdict.INCORRECT, score=0.0, extracted="\ud800", reason="\udfff is not 1")

    decoded = codec.grade_from_v1(codec.grade_to_v1(grade), "x")

    assert (decoded.extracted, decoded.reason) == ("\ufffd", "\ufffd is not 1")


def test_options_without_a_scorer_are_refused_with_the_names_that_there_are() -> None:
    """As another language may send them."""
    with pytest.raises(InvalidField, match=r"names no scorer, known are: exact_match, .*, format$"):
        codec.score_options_from_v1(pb.ScoreOptions(), "options")


def test_a_grader_is_named_alone() -> None:
    """A scorer beside it, and options without a grader, are refused by name: one of the two would have no effect."""
    both = pb.ScoreOptions(grader="numeric", f1=pb.TextScorer())
    of_none = pb.ScoreOptions(f1=pb.TextScorer())
    of_none.grader_options.update({"full": True})

    for message, field in ((both, "options.f1"), (of_none, "options.grader_options")):
        with pytest.raises(InvalidField) as caught:
            codec.score_options_from_v1(message, "options")
        assert caught.value.field == field
