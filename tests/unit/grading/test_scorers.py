"""Scores as a request asks for them: every scorer, thresholds, and items that cannot be judged."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    ExactComparison,
    FormatScorer,
    GradeItem,
    JsonSchemaForm,
    MarksForm,
    NumericScorer,
    RegexScorer,
    ScoreOptions,
    Scorer,
    TextScorer,
    Verdict,
)
from crucible_worker.grading import format
from crucible_worker.grading.base import MAX_EXTRACTED_CHARS, MAX_TEXT_BYTES, Grade
from crucible_worker.grading.choice import MAX_CHOICES
from crucible_worker.grading.choice_prose import MAX_MENTIONS
from crucible_worker.grading.json_schema import MAX_STEPS
from crucible_worker.grading.registry import GRADERS, create
from crucible_worker.grading.scorers import ItemScorer, decides_at_once, score
from crucible_worker.grading.text import ExactMatch
from tests.tables import rows

CASES = Path(__file__).parents[2] / "cases" / "text" / "scores.jsonl"
EXACT = ScoreOptions(scorer=TextScorer(kind="exact_match"))

SCORERS = (
    *(TextScorer(kind=kind) for kind in ("exact_match", "contains", "f1", "bleu", "rouge")),
    *(TextScorer(kind="exact_match", compare=compare) for compare in ExactComparison),
    *(RegexScorer(), NumericScorer(absolute_tolerance=1.0), ChoiceScorer(choices=("ab", "46"))),
    *(
        FormatScorer(BoxedForm()),
        FormatScorer(MarksForm(("4", "6"))),
        FormatScorer(JsonSchemaForm('{"type": "array"}')),
    ),
)


def _scorer(name: str, options: dict[str, Any]) -> Scorer:
    match name:
        case "regex":
            return RegexScorer(**options)
        case "numeric":
            return NumericScorer(**options)
        case "multiple_choice":
            return ChoiceScorer(choices=tuple(options["choices"]))
        case "format":
            forms = {"boxed": BoxedForm, "marks": MarksForm, "json_schema": JsonSchemaForm}
            given = [
                tuple(value) if isinstance(value, list) else value for key, value in options.items() if key != "form"
            ]
            return FormatScorer(forms[options["form"]](*given))
        case "exact_match" | "contains" | "f1" | "bleu" | "rouge":
            return TextScorer(kind=name, **options)
    raise AssertionError(name)


@rows("case", [pytest.param(case, id=case["id"]) for case in map(json.loads, CASES.read_text("ascii").splitlines())])
def test_the_score_is_the_recorded_one(case: dict[str, Any]) -> None:
    """Every recorded text has its recorded verdict and score, by the scorer's name, given as answer or response."""
    options = ScoreOptions(scorer=_scorer(case["scorer"], case.get("options", {})), threshold=case.get("threshold"))
    items = [
        GradeItem(id="a", answer=case["text"], targets=tuple(case["targets"])),
        GradeItem(id="b", response=case["text"], targets=tuple(case["targets"])),
    ]

    answer, response = score(items, options)

    recorded = case.get("score", {"correct": 1.0, "incorrect": 0.0, "undecided": None}.get(case["verdict"], -1.0))
    assert answer.verdict.value == case["verdict"], answer
    assert answer.score == (recorded if recorded is None else pytest.approx(recorded, abs=5e-5))
    assert (answer.id, response.id) == ("a", "b")
    assert answer.method == case["scorer"]
    assert answer.extraction == ("number" if answer.extracted and case["scorer"] == "numeric" else "whole")
    assert (answer.verdict, answer.score, answer.extracted) == (response.verdict, response.score, response.extracted)
    assert answer.reason or answer.verdict is not Verdict.UNDECIDED
    assert answer.duration_ns > 0


@pytest.mark.parametrize("scorer", SCORERS, ids=repr)
@given(
    text=st.text(st.sampled_from('46ab ,.-{}[]\\"\ud800\n()'), max_size=20) | st.text(max_size=20),
    target=st.text(st.sampled_from("46ab ().*"), max_size=10),
    threshold=st.none() | st.floats(0, 1),
)
def test_every_text_has_a_grade(scorer: Scorer, text: str, target: str, threshold: float | None) -> None:
    """A verdict fits its score: CORRECT from the threshold on, INCORRECT at 0, PARTIAL between; none where unscored."""
    options = ScoreOptions(scorer=scorer, threshold=threshold)

    (grade,) = score([GradeItem(response=text, targets=(target,))], options)

    assert grade.verdict is not Verdict.ERROR, grade.reason
    assert (grade.score is None) is (grade.verdict is Verdict.UNDECIDED)
    if grade.score is not None:
        default = 0.5 if isinstance(scorer, TextScorer) and scorer.kind in ("f1", "bleu", "rouge") else 1.0
        reached = grade.score >= (default if threshold is None else threshold)
        below = Verdict.PARTIAL if grade.score > 0 else Verdict.INCORRECT
        assert 0 <= grade.score <= 1
        assert grade.verdict is (Verdict.CORRECT if reached else below)


def test_the_order_of_what_is_no_list_cannot_count() -> None:
    """`ordered_lists` is refused by name where no lists are compared, as over the wire: it would have no effect."""
    for compare in ({}, {"compare": "text"}, {"compare": "number"}):
        with pytest.raises(InvalidField, match="compare") as error:
            create("exact_match", {**compare, "ordered_lists": True}, name_field="grader", options_field="options")
        assert error.value.field == 'options["ordered_lists"]'


@rows("scorer", SCORERS, ids=repr)
def test_a_text_above_the_limit_is_not_read(scorer: Scorer) -> None:
    """One byte too many makes that item wrong, or undecided where there is no target, and costs no other anything."""
    fits, above = (GradeItem(answer="z" * size, targets=("46",)) for size in (MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1))

    grades = score([above, fits, above], ScoreOptions(scorer=scorer))

    assert [f"longer than {MAX_TEXT_BYTES:,} bytes" in grade.reason for grade in grades] == [True, False, True]
    without_target = isinstance(scorer, FormatScorer)
    assert grades[0].verdict is grades[2].verdict is (Verdict.UNDECIDED if without_target else Verdict.INCORRECT)


def test_a_scorer_that_fails_costs_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug shows as the ERROR of the item that met it, with what it was; the neighbours are scored."""
    judge = ExactMatch.judge

    def fails(self: ExactMatch, response: str, *rest: Any) -> Grade:
        if response == "b":
            raise ZeroDivisionError("oh")
        return judge(self, response, *rest)

    monkeypatch.setattr(ExactMatch, "judge", fails)

    grades = score([GradeItem(id=name, answer=name, targets=("a",)) for name in "abc"], EXACT)

    assert [grade.verdict for grade in grades] == [Verdict.CORRECT, Verdict.ERROR, Verdict.INCORRECT]
    assert grades[1].score is None
    assert grades[1].problem is not None
    assert (grades[1].problem.reason, grades[1].id) == ("GRADER_FAILED", "b")
    assert re.fullmatch("ZeroDivisionError in the scorer; error id [0-9a-f]{16} in .*", grades[1].problem.message)


@rows("schema", ["", "{", '{"type": 5}', '{"$ref": "https://example.org/"}', '{"pattern": "(?=a)"}'])
def test_a_schema_that_cannot_be_used_is_the_requests_fault(schema: str) -> None:
    """It is refused with its path before any item is looked at."""
    with pytest.raises(InvalidField) as caught:
        score([], ScoreOptions(scorer=FormatScorer(JsonSchemaForm(schema))))

    assert (caught.value.field, caught.value.reason) == ("options.format.json_schema", "INVALID_SCHEMA")


@pytest.mark.parametrize("size", [MAX_EXTRACTED_CHARS - 1, MAX_EXTRACTED_CHARS, MAX_EXTRACTED_CHARS + 1])
def test_what_is_extracted_is_cut(size: int) -> None:
    """A grade does not carry a megabyte back."""
    (grade,) = score([GradeItem(answer="z" * size, targets=("a",))], EXACT)

    assert len(grade.extracted) == min(size, MAX_EXTRACTED_CHARS)


NAMED = {
    "exact_match": {"fold_case": True},
    "contains": {"fold_case": True},
    "f1": {},
    "bleu": {},
    "rouge": {},
    "regex": {"full": True},
    "numeric": {"absolute_tolerance": 1.0},
    "multiple_choice": {"choices": ["ab", "46"]},
    "format": {"form": "json_schema", "json_schema": {"type": "array"}},
}
"""Options of each grader that decides at once."""


def test_every_grader_that_needs_no_other_process_decides_at_once() -> None:
    """A call scores with it in its thread."""
    assert set(NAMED) == {name for name in GRADERS if decides_at_once(name)}


@pytest.mark.parametrize("name", NAMED)
@given(text=st.text(st.sampled_from("46ab ,.[]"), max_size=12), target=st.text(st.sampled_from("46ab"), min_size=1))
def test_a_named_grader_scores_as_the_scorer_of_its_name(name: str, text: str, target: str) -> None:
    """They are one grader, whose options evaluators, calls and scorers have."""
    plain = {"fold_case"}
    given = {key: value for key, value in NAMED[name].items() if key not in plain}
    if name == "format":
        given = {"form": "json_schema", "schema": json.dumps(given["json_schema"])}
    item = GradeItem(id="a", response=text, targets=(target,))

    (named,) = score([item], ScoreOptions(grader=name, grader_options=NAMED[name]))
    (scored,) = score([item], ScoreOptions(scorer=_scorer(name, given)))

    assert dataclasses.replace(named, duration_ns=0) == dataclasses.replace(scored, duration_ns=0)


@rows(
    ("grader", "options", "field", "reason"),
    [
        ("levenshtein", {}, "options.grader", "UNKNOWN_GRADER"),
        ("caller:style", {}, "options.grader", "INVALID_FIELD"),
        ("rubric", {"judge": "embedded:arithmetic@320"}, "options.grader", "INVALID_FIELD"),
        ("numeric", {"tolerance": 1}, 'options.grader_options["tolerance"]', "UNKNOWN_OPTION"),
        ("multiple_choice", {"choices": ["a", "a"]}, 'options.grader_options["choices"][1]', "INVALID_FIELD"),
        (
            "format",
            {"form": "json_schema", "json_schema": "{"},
            'options.grader_options["json_schema"]',
            "INVALID_SCHEMA",
        ),
    ],
)
def test_a_named_grader_that_cannot_score_is_refused(
    grader: str, options: dict[str, Any], field: str, reason: str
) -> None:
    """At its name, or at the option that is wrong."""
    with pytest.raises(InvalidField) as caught:
        ItemScorer(ScoreOptions(grader=grader, grader_options=options))

    assert (caught.value.field, caught.value.reason) == (field, reason)


def test_marks_beyond_their_limit_are_the_requests_fault() -> None:
    """At the limit they are looked for; one more is refused, with its path."""
    grades = score([GradeItem(answer="z")], ScoreOptions(scorer=FormatScorer(MarksForm(("m",) * format.MAX_MARKS))))
    with pytest.raises(InvalidField) as caught:
        score([], ScoreOptions(scorer=FormatScorer(MarksForm(("m",) * (format.MAX_MARKS + 1)))))

    assert grades[0].verdict is Verdict.INCORRECT
    assert caught.value.field == "options.format.marks.marks"


@rows(
    ("choices", "field"),
    [
        (tuple(map(str, range(MAX_CHOICES + 1))), "options.multiple_choice.choices"),
        (("a", " "), "options.multiple_choice.choices[1]"),
        (("", "a"), "options.multiple_choice.choices[0]"),
        (("a", "b", " a"), "options.multiple_choice.choices[2]"),
    ],
)
def test_choices_that_cannot_be_told_apart_are_the_requests_fault(choices: tuple[str, ...], field: str) -> None:
    """They are refused with their path before any item is looked at."""
    with pytest.raises(InvalidField) as caught:
        score([], ScoreOptions(scorer=ChoiceScorer(choices=choices)))

    assert caught.value.field == field


def test_choices_at_their_limit_are_told_apart() -> None:
    """Each has a letter; those that differ in case are two."""
    choices = ("a b", "A B", *map(str, range(MAX_CHOICES - 2)))

    (grade,) = score([GradeItem(answer="Z", targets=("Z",))], ScoreOptions(scorer=ChoiceScorer(choices=choices)))

    assert grade.verdict is Verdict.CORRECT


@rows(
    ("response", "reason"),
    [
        ("red or blue", "SEVERAL_CHOICES"),
        ("A and B are both fine", "SEVERAL_CHOICES"),
        ("It cannot be blue.", "CHOICE_DENIED"),
        ("B can be ruled out", "CHOICE_DENIED"),
        ("I do not know", None),
        ("A", None),
    ],
)
def test_a_hedge_is_wrong_and_says_which(response: str, reason: str | None) -> None:
    """Several choices, or only denied ones, are INCORRECT with their own reason, next to plain wrong answers."""
    options = ScoreOptions(scorer=ChoiceScorer(choices=("red", "blue")))

    (grade,) = score([GradeItem(answer=response, targets=("blue",))], options)

    assert (grade.verdict, grade.score) == (Verdict.INCORRECT, 0.0)
    assert (grade.problem and grade.problem.reason) == reason


@rows("name", ["B", "blue"])
@rows(("count", "verdict"), [(MAX_MENTIONS - 1, Verdict.CORRECT), (MAX_MENTIONS, Verdict.INCORRECT)])
def test_mentions_that_are_ruled_out_are_bounded(name: str, count: int, verdict: Verdict) -> None:
    """A response that rules a choice out so often is not read to its end."""
    options = ScoreOptions(scorer=ChoiceScorer(choices=("red", "blue")))

    (grade,) = score([GradeItem(answer=f"not {name}; " * count + f"{name} it was", targets=("blue",))], options)

    assert grade.verdict is verdict


def test_the_documents_of_a_call_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all before took the steps of a call, those behind are UNDECIDED; the next call starts anew."""
    monkeypatch.setattr(format.StepsLeft.__init__, "__defaults__", (2 * MAX_STEPS,))
    doubling = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(40)}
    schema = json.dumps({"$defs": {**doubling, "d40": True}, "$ref": "#/$defs/d0"})
    options = ScoreOptions(scorer=FormatScorer(JsonSchemaForm(schema)))

    first, second = ItemScorer(options), ItemScorer(options)
    reasons = [first(GradeItem(answer="1")).reason for _ in range(3)]

    assert [f"more than {MAX_STEPS:,} steps" in reason for reason in reasons] == [True, True, False]
    assert "the documents before" in reasons[2]
    assert f"more than {MAX_STEPS:,} steps" in second(GradeItem(answer="1")).reason
