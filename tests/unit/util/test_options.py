"""Options that are declared once: their JSON schema, the check of values, and what a class gets of those that pass."""

import dataclasses
import enum
import itertools
import json
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import UNSET, Meta, UnsetType

from crucible_bridge.errors import InvalidField
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.registry import GRADERS
from crucible_worker.loggers import registry as loggers
from crucible_worker.util.options import (
    Flat,
    Handed,
    Undeclarable,
    checked_options,
    handed_names,
    may_be_refused,
    schema_of,
    values_of,
)
from tests.tables import rows

BEFORE: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "cases" / "release_before" / "options.json").read_text()
)
"""The schemas that the release before wrote by hand, without descriptions."""
ADDED_TO_GRADERS = {
    **dict.fromkeys(("f1", "bleu", "rouge"), ("collapse_whitespace", "strip_punctuation")),
    "multiple_choice": ("choices", "ordered"),
}
"""Options of graders that have come since."""
ADDED = {
    "comparison": ("clean",),
    "nll": ("windows",),
    "rl_test_set": ("require_stop_sequence_for_format", "num_groups_to_log"),
}
"""Options of evaluators that have come since."""
WIDENED = ("compare", "delimiter", "grader", "json_schema", "train_on")
"""Options that accept more than they did: everything that they accepted, and null or further values."""


class Colour(enum.StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """Options within."""

    low: int = 1
    """The lowest."""
    high: int = 2
    """The highest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """A class to extend."""

    first: bool = False
    """Stands first, unless it is declared again."""
    worker: Handed[object] = None
    """The worker's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Every(Base):
    """Has an option of every type."""

    count: Annotated[int, Meta(ge=1, lt=9)] = 3
    """How
    often."""
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    name: Annotated[str, Meta(min_length=1, max_length=5, pattern="^[a-z]*$", description="What it is called.")]
    mode: Literal["a", "b"] = "a"
    colour: Colour = Colour.BLUE
    maybe: Annotated[int | None, Meta(ge=0)] = None
    marks: Annotated[Sequence[Annotated[int, Meta(ge=0)]], Meta(max_length=2)] = (1,)
    table: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: str | UnsetType = UNSET
    inner: Annotated[Inner, Flat(("high",), {"high": {"maximum": 7}})] = Inner()
    first: bool = True
    """Declared again."""
    hidden: Handed[object] = None


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = value.items()
        return {k: _without_descriptions(v) for k, v in kept if not (k == "description" and isinstance(v, str))}
    return [_without_descriptions(each) for each in value] if isinstance(value, list | tuple) else value


def test_every_type_has_its_rule() -> None:
    """Types, bounds, defaults and docstrings become JSON schema, in the order of the class that declares them last."""
    schema = schema_of(Every)

    assert schema == {
        "type": "object",
        "properties": {
            "count": {
                "type": "integer",
                "minimum": 1,
                "exclusiveMaximum": 9,
                "default": 3,
                "description": "How often.",
            },
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5},
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": 5,
                "pattern": "^[a-z]*$",
                "description": "What it is called.",
            },
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
            "maybe": {"type": ["integer", "null"], "minimum": 0, "default": None},
            "marks": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "maxItems": 2,
                "default": [1],
            },
            "table": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
            "absent": {"type": "string"},
            "high": {"type": "integer", "default": 2, "maximum": 7, "description": "The highest."},
            "first": {"type": "boolean", "default": True, "description": "Declared again."},
        },
        "additionalProperties": False,
        "required": ["name"],
    }
    assert list(schema["properties"])[-2:] == ["high", "first"]
    Draft202012Validator.check_schema(schema)
    assert handed_names(Every) == ("worker", "hidden")


def test_values_are_those_that_the_class_declares() -> None:
    """Doubles become whole numbers, texts become members, lists tuples, and what stands within is put together."""
    options = checked_options(
        {"name": "x", "maybe": 4.0, "marks": [1.0, 2.0], "colour": "red", "high": 5.0}, schema_of(Every), "options"
    )

    made = Every(**values_of(Every, options))

    assert made == Every(name="x", maybe=4, marks=(1, 2), colour=Colour.RED, inner=Inner(low=1, high=5))
    assert {type(each) for each in (made.maybe, *made.marks, made.inner.high)} == {int}
    assert isinstance(made.colour, Colour)


@given(st.dictionaries(st.sampled_from(["count", "maybe", "first", "mode"]), st.integers(-3, 12) | st.booleans()))
def test_what_passes_the_schema_makes_the_class(given: dict[str, Any]) -> None:
    """Whatever a request holds: it is refused, or it is what the class then has."""
    options = {"name": "x", **given}
    if not Draft202012Validator(schema_of(Every)).is_valid(options):
        return
    made = Every(**values_of(Every, checked_options(options, schema_of(Every), "options")))

    assert {name: getattr(made, name) for name in options} == options


def judged(response: str, targets: Sequence[str], *, most: Annotated[int, Meta(ge=1)] = 3, word: str) -> bool:
    """Judge.

    Args:
        response: what was said.
        targets: what is right.
        most: words that it has
            at most.
        word: what it holds.

    Returns:
        Whether it does.
    """
    return word in response.split()[:most] or response in targets


def test_the_options_of_a_function_are_its_keyword_parameters() -> None:
    """Described under Args; positional ones are none."""
    assert schema_of(judged)["properties"] == {
        "most": {"type": "integer", "minimum": 1, "default": 3, "description": "words that it has at most."},
        "word": {"type": "string", "description": "what it holds."},
    }
    assert schema_of(judged)["required"] == ["word"]


def _of_type(kind: Any) -> type[Any]:
    return dataclasses.make_dataclass("Made", [("x", kind, None)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded:
    """Has bounds within a type or None, and further types with None."""

    inside: Annotated[int, Meta(ge=1)] | None = None
    colour: Colour | None = None
    marks: Sequence[Annotated[str, Meta(min_length=1)]] | None = None
    shares: Mapping[str, Annotated[int, Meta(ge=0)]] | None = None


@rows(
    ("option", "refused", "given", "value"),
    [
        ("inside", 0, 2.0, 2),
        ("colour", "green", "red", Colour.RED),
        ("marks", [""], ["a"], ("a",)),
        ("shares", {"a": -1}, {"a": 2.0}, {"a": 2}),
    ],
)
def test_none_may_stand_beside_any_type_and_its_bounds(option: str, refused: Any, given: Any, value: Any) -> None:
    """The bounds hold, the value has the type, and null is what the field then has."""

    def read(told: Any) -> Any:
        return values_of(Bounded, checked_options({option: told}, schema_of(Bounded), "options"))[option]

    with pytest.raises(InvalidField) as caught:
        read(refused)
    found = read(given)

    assert caught.value.field.startswith(f'options["{option}"]')
    assert found == value
    assert list(map(type, found.values() if isinstance(found, dict) else (found,))) == list(
        map(type, value.values() if isinstance(value, dict) else (value,))
    )
    assert read(None) is None


def test_another_type_has_the_bounds_of_the_schema_it_brings() -> None:
    """By what it says of itself: a list has entries, a text characters."""
    own = {"type": "array", "items": {"type": ["integer", "string"]}}
    entries = schema_of(_of_type(Annotated[Any, Meta(max_length=2, extra_json_schema=own)]))
    number = schema_of(_of_type(Annotated[object, Meta(ge=1, extra_json_schema={"type": ["integer", "string"]})]))

    assert entries["properties"]["x"] == {**own, "maxItems": 2, "default": None}
    assert number["properties"]["x"] == {"type": ["integer", "string"], "minimum": 1, "default": None}


@rows("kind", [object, bytes, Literal[1, 2], int | str, Sequence[bytes], Callable])
def test_a_type_that_no_json_value_has_is_refused(kind: Any) -> None:
    """With the name of the field."""
    with pytest.raises(Undeclarable, match="the option 'x'"):
        schema_of(_of_type(kind))


def test_a_name_that_cannot_be_read_is_refused() -> None:
    """As an annotation that names what is imported for checkers alone."""
    with pytest.raises(Undeclarable, match="Nowhere"):
        schema_of(_of_type("Nowhere"))


@rows("name", BEFORE["graders"])
def test_graders_accept_what_they_accepted_in_the_release_before(name: str) -> None:
    """Each option has the rule that was written by hand, in the same order; descriptions may differ.

    An option that has come since may be left out.
    """
    before = BEFORE["graders"][name]
    found = _as_before(ADDED_TO_GRADERS.get(name, ()), GRADERS[name].options_schema, before)

    assert found == before
    assert list(found["properties"]) == list(before["properties"])


@rows("kind", BEFORE["evaluators"])
def test_evaluators_are_what_they_were_in_the_release_before(kind: str) -> None:
    """Rules of options, keys with their units, kinds of clients and the goal of scores; descriptions may differ.

    An option that has come since may be left out.
    """
    info, before = EVALUATORS[kind].info, BEFORE["evaluators"][kind]
    schema = {name: rule for name, rule in info.options_schema.items() if not name.startswith("$")}

    found = _as_before(ADDED.get(kind, ()), schema, before["schema"])
    assert found == before["schema"]
    assert list(found["properties"]) == list(before["schema"]["properties"])
    assert dict(info.keys) == before["keys"]
    assert ([str(each) for each in info.kinds], str(info.score_goal)) == (before["kinds"], before["goal"])
    if "grader" in schema["properties"]:
        assert info.options_schema["$defs"] == {name: grader.options_schema for name, grader in GRADERS.items()}


def _as_before(added: Iterable[str], schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without what has come since, which no request has to give."""
    found = _without_descriptions(json.loads(json.dumps(schema)))
    for name in added:
        assert "default" in found["properties"].pop(name)
    for name in set(WIDENED) & found["properties"].keys():
        now, was = found["properties"][name], before["properties"][name]
        for words in ("enum", "examples"):
            assert set(was.get(words, ())) <= set(now.get(words, ()))
        assert was["type"] in (now["type"], *now["type"])
        found["properties"][name] = was
    return found


@rows("kind", EVALUATORS)
def test_every_option_is_described(kind: str) -> None:
    """By a docstring under the field, or by its type."""
    assert all(rule.get("description") for rule in EVALUATORS[kind].info.options_schema["properties"].values())


# The check of values.

DECLARED: Mapping[str, Any] = {
    **{f"grader {name}": grader.declared for name, grader in GRADERS.items()},
    **{f"evaluator {kind}": found.evaluator for kind, found in EVALUATORS.items()},
    **{f"logger {kind}": loggers.find(kind) for kind in loggers.BUILT_IN},
}
"""Every class of the worker that declares options."""
VALUES: Sequence[Any] = (
    *(None, True, "", "x", "null", "3", "x" * 2_000, -1, 0, 1, 3.0, 1.5, 1e300, 10**30),
    *([], ["x"], [1], [1.0, 1], ["x", 5], [None], [{}], ["x"] * 2_000, {}, {"x": 1}, {"x": "y"}),
)
CURES = ("must be ", "not one of: ", " is needed", " is accepted", "against the rule ", "is missing")


@rows("declared", DECLARED)
def test_each_value_of_each_option_is_taken_or_refused_by_name(declared: str) -> None:
    """What is taken is what the class then has; what is refused is named by its path, with what is accepted."""
    schema = {**schema_of(DECLARED[declared]), "required": []}
    for option, value in itertools.product(schema["properties"], VALUES):
        if Draft202012Validator(schema["properties"][option]).is_valid(value):
            checked = checked_options({option: value}, schema, "options")
            assert checked[option] == value
            assert values_of(DECLARED[declared], checked)
            continue
        with pytest.raises(InvalidField) as caught:
            checked_options({option: value}, schema, "options")

        assert caught.value.field.startswith(f'options["{option}"]')
        assert any(cure in caught.value.message for cure in CURES)


@rows("declared", DECLARED)
def test_a_misspelt_option_is_told_its_name(declared: str) -> None:
    """Before anything else that is wrong, since a missing option may be the misspelt one."""
    schema = schema_of(DECLARED[declared])
    for option in schema["properties"]:
        with pytest.raises(InvalidField, match="is unknown; did you mean ") as caught:
            checked_options({f"{option}_": 1}, schema, "options")

        assert f"did you mean {option}? known are: " in caught.value.message


@rows("declared", DECLARED)
def test_msgspec_has_the_same_bounds(declared: str) -> None:
    """Where msgspec makes a schema of the type, both accept the same values."""
    hints = typing.get_type_hints(DECLARED[declared], include_extras=True)
    for option, rule in schema_of(DECLARED[declared])["properties"].items():
        try:
            theirs = msgspec.json.schema(hints[option])
        except (KeyError, TypeError):  # a field within a field; a bound of a type or None
            continue
        ours, theirs = Draft202012Validator(rule), Draft202012Validator(theirs)
        for value in (*VALUES, *rule.get("enum", ())):
            assert ours.is_valid(value) == theirs.is_valid(value), (option, value)


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
