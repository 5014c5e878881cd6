"""Options: what a schema refuses, with its path, and what it fills in."""

import math
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from crucible_bridge.errors import InvalidField
from crucible_worker.grading import registry
from crucible_worker.grading.options import checked_options, may_be_refused
from tests.tables import rows

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "nested": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "number"}}}},
        "short": {"type": "string", "maxLength": 2},
        "strict": {"type": "boolean"},
        "either": {"type": ["number", "null"]},
    },
    "required": ["mode"],
    "additionalProperties": False,
}


@rows(
    ("options", "field", "says"),
    [
        ({}, 'options["mode"]', "is missing"),
        ({"mode": "other"}, 'options["mode"]', "'other', not one of: fast, slow"),
        ({"mode": "fast", "count": 0}, 'options["count"]', "is 0, at least 1"),
        ({"mode": "fast", "count": 4}, 'options["count"]', "is 4, at most 3"),
        ({"mode": "fast", "count": 1.5}, 'options["count"]', "is 1.5, must be a whole number"),
        ({"mode": "fast", "count": True}, 'options["count"]', "is true, must be a whole number"),
        ({"mode": 5}, 'options["mode"]', "is 5, must be text"),
        ({"mode": "fast", "strict": "no"}, 'options["strict"]', "is 'no', must be true or false"),
        ({"mode": "fast", "strict": None}, 'options["strict"]', "is null, must be true or false"),
        ({"mode": "fast", "either": True}, 'options["either"]', "is true, must be a number or null"),
        ({"mode": "fast", "nested": []}, 'options["nested"]', "is [], must be an object"),
        ({"mode": "fast", "cuont": 1}, 'options["cuont"]', "is unknown; did you mean count? known are: count, mode"),
        ({"mode": "fast", "zzzz": 1}, 'options["zzzz"]', "is unknown; known are: count, mode"),
        ({"mode": "fast", "nested": {"list": [1, "x"]}}, 'options["nested"]["list"][1]', "is 'x', must be a number"),
        ({"mode": "fast", "nested": {"list": [1, math.nan]}}, 'options["nested"]["list"][1]', "is nan"),
        ({"mode": "fast", "short": "abc"}, 'options["short"]', "maxLength"),
        ({"mode": "x" * 1000}, 'options["mode"]', "..."),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], field: str, says: str) -> None:
    """An error points at the option that is wrong, says what is, and never repeats a long value."""
    with pytest.raises(InvalidField) as caught:
        checked_options(options, SCHEMA, "options")

    assert caught.value.field == field
    assert says in caught.value.message
    assert len(caught.value.message) < 200


def test_defaults_are_filled_in() -> None:
    """An option that is not given has its default, or is left out where there is none."""
    assert checked_options({"mode": "fast"}, SCHEMA, "options") == {"mode": "fast", "count": 2}


def test_whole_numbers_become_integers() -> None:
    """JSON knows no integers apart, and google.protobuf.Struct has doubles only: 3.0 is 3 where an integer is asked."""
    count = checked_options({"mode": "fast", "count": 3.0}, SCHEMA, "options")["count"]

    assert count == 3
    assert isinstance(count, int)


def test_an_unknown_grader_is_refused_with_those_that_are_known() -> None:
    """The error names the field and every grader that there is."""
    with pytest.raises(InvalidField, match="exact_match, contains, numeric, multiple_choice, math") as caught:
        registry.create("oracle", {}, name_field="grader", options_field="options")

    assert (caught.value.field, caught.value.reason) == ("grader", "UNKNOWN_GRADER")


@rows("name", registry.GRADERS)
def test_every_grader_refuses_unknown_options(name: str) -> None:
    """A misspelt option is an error, not a grader with other rules than its user thinks."""
    with pytest.raises(InvalidField) as caught:
        registry.create(name, {"fold_csae": True}, name_field="grader", options_field="grader_options")

    assert (caught.value.field, caught.value.reason) == ('grader_options["fold_csae"]', "UNKNOWN_OPTION")


@rows(
    ("options", "further", "checked"),
    [
        ({}, {}, False),
        ({}, {"$defs": {}, "additionalProperties": False}, False),
        ({"mode": "fast"}, {}, True),
        ({}, {"required": ["mode"]}, True),
        ({}, {"minProperties": 1}, True),
        ({}, {"anyOf": [{"required": ["mode"]}]}, True),
    ],
)
def test_no_options_are_checked_only_by_a_schema_that_may_need_some(
    options: dict[str, Any], further: dict[str, Any], *, checked: bool
) -> None:
    """Every other schema accepts them, whatever its options are."""
    schema = {"type": "object", "properties": {"mode": {"type": "string"}}, **further}

    assert may_be_refused(options, schema) is checked
    if not checked:
        Draft202012Validator(schema).validate(options)
