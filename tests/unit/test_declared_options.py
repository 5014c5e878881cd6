"""Options that are declared once: what their JSON schema is, and what a class gets of options that passed it."""

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import UNSET, Meta, UnsetType

from crucible_worker.declared_options import (
    Flat,
    Handed,
    Internal,
    Undeclarable,
    handed_names,
    options_of,
    schema_of,
    values_of,
)
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.options import checked_options
from crucible_worker.grading.registry import GRADERS
from tests.tables import rows

BEFORE: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[1] / "cases" / "release_before" / "options.json").read_text()
)
"""The schemas that the release before wrote by hand, without descriptions."""
ADDED = {
    "comparison": ("clean",),
    "nll": ("windows",),
    "rl_test_set": ("require_stop_sequence_for_format", "num_groups_to_log"),
}
"""Options of evaluators that have come since."""
WIDENED = ("delimiter", "train_on")
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
    hidden: Internal[object] = None


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
    assert handed_names(Every) == ("worker",)


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


@rows("kind", [object, bytes, Literal[1, 2], int | str, Sequence[bytes], Callable])
def test_a_type_that_no_json_value_has_is_refused(kind: Any) -> None:
    """With the name of the field."""
    with pytest.raises(Undeclarable, match="the option 'x'"):
        schema_of(_of_type(kind))


def test_a_name_that_cannot_be_read_is_refused() -> None:
    """As an annotation that names what is imported for checkers alone."""
    with pytest.raises(Undeclarable, match="Nowhere"):
        options_of(_of_type("Nowhere"))


@rows("name", BEFORE["graders"])
def test_graders_accept_what_they_accepted_in_the_release_before(name: str) -> None:
    """Each option has the rule that was written by hand, in the same order; descriptions may differ."""
    found, before = _without_descriptions(GRADERS[name].options_schema), BEFORE["graders"][name]

    assert json.loads(json.dumps(found)) == before
    assert list(found["properties"]) == list(before["properties"])


@rows("kind", BEFORE["evaluators"])
def test_evaluators_are_what_they_were_in_the_release_before(kind: str) -> None:
    """Rules of options, keys with their units, kinds of clients and the goal of scores; descriptions may differ.

    An option that has come since may be left out.
    """
    info, before = EVALUATORS[kind].info, BEFORE["evaluators"][kind]
    schema = {name: rule for name, rule in info.options_schema.items() if not name.startswith("$")}

    added = {name: rule for name, rule in schema["properties"].items() if name in ADDED.get(kind, ())}
    schema["properties"] = {name: rule for name, rule in schema["properties"].items() if name not in added}
    assert all("default" in rule for rule in added.values())
    found = _without_descriptions(json.loads(json.dumps(schema)))
    for name in set(WIDENED) & found["properties"].keys():
        now, was = found["properties"][name], before["schema"]["properties"][name]
        assert set(was.get("enum", ())) <= set(now.get("enum", ()))
        assert was["type"] in (now["type"], *now["type"])
        found["properties"][name] = was
    assert found == before["schema"]
    assert list(schema["properties"]) == list(before["schema"]["properties"])
    assert dict(info.keys) == before["keys"]
    assert ([str(each) for each in info.kinds], str(info.score_goal)) == (before["kinds"], before["goal"])
    if "grader" in schema["properties"]:
        assert info.options_schema["$defs"] == {name: grader.options_schema for name, grader in GRADERS.items()}


@rows("kind", EVALUATORS)
def test_every_option_is_described(kind: str) -> None:
    """By a docstring under the field, or by its type."""
    assert all(option.rule.get("description") for option in options_of(EVALUATORS[kind].evaluator))
