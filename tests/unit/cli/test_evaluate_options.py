"""How evaluators and their options are written on the command line."""

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluatorSpec
from crucible_worker.cli.requests import read_evaluators
from tests.tables import rows


def test_an_evaluator_is_a_kind():
    """A bare kind has no name, so that its keys are bare."""
    assert read_evaluators(["nll"], []) == (EvaluatorSpec(kind="nll"),)


def test_an_evaluator_may_have_a_name():
    """NAME=KIND prefixes its keys."""
    assert read_evaluators(["strict=accuracy"], []) == (EvaluatorSpec(kind="accuracy", name="strict"),)


@rows(
    ("written", "value"),
    [("numeric", "numeric"), ("3", 3), ("true", True), ("[1, 2]", [1, 2]), ('"3"', "3"), ("a=b", "a=b"), ("", "")],
)
def test_values_are_json_or_text(written: str, value: object):
    """What is JSON is taken as such, all else as text."""
    (spec,) = read_evaluators(["accuracy"], [f"accuracy.grader={written}"])

    assert spec.options == {"grader": value}


def test_options_find_their_evaluator_by_its_label():
    """A named evaluator's options go by its name, another one's by its kind."""
    options = ["accuracy.grader=exact_match", "lenient.grader=contains"]
    specs = read_evaluators(["accuracy", "lenient=accuracy"], options)

    assert [spec.options for spec in specs] == [{"grader": "exact_match"}, {"grader": "contains"}]


def test_an_option_within_an_option_is_set_by_its_path():
    """Behind the evaluator's label, which may have dots of its own; beside others, and beside an object in JSON."""
    options = [
        "accuracy.grader_options.compare=number",
        "accuracy.grader_options.policy.degrees=true",
        'a.b.grader_options={"x": 1}',
        "a.b.grader_options.y=2",
    ]
    specs = read_evaluators(["accuracy", "a.b=accuracy"], options)

    assert [spec.options for spec in specs] == [
        {"grader_options": {"compare": "number", "policy": {"degrees": True}}},
        {"grader_options": {"x": 1, "y": 2}},
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["accuracy.grader_options.x=1", "accuracy.grader_options.x=2"], "grader_options.x is given twice"),
        (["accuracy.grader_options.x=1", "accuracy.grader_options={}"], "grader_options is given twice"),
        (["accuracy.grader=numeric", "accuracy.grader.x=1"], "is inside of grader, which has a value"),
    ],
)
def test_an_option_with_two_values_is_refused(options: list[str], says: str):
    """At every level."""
    with pytest.raises(InvalidField, match=says):
        read_evaluators(["accuracy"], options)


@rows("option", ["grader=numeric", "accuracy.grader", ".grader=x", "accuracy.=x"])
def test_an_option_that_cannot_be_read_is_refused(option: str):
    """The error shows what was written and the form that is wanted."""
    with pytest.raises(InvalidField, match=r"option\[0\] is .* not EVALUATOR.KEY=VALUE"):
        read_evaluators(["accuracy"], [option])


def test_an_option_of_nobody_is_refused():
    """A misspelt label is not passed over in silence."""
    with pytest.raises(InvalidField, match="accuracie"):
        read_evaluators(["accuracy"], ["accuracie.grader=numeric"])
