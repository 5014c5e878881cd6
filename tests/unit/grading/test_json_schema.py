"""JSON schemas: agreement with another validator, what is refused, and that no schema or document is expensive."""

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from crucible_bridge.errors import InvalidField
from crucible_worker.grading.json_schema import (
    MAX_NESTING,
    MAX_NUMBER_CHARS,
    MAX_PATTERNS,
    MAX_SCHEMA_BYTES,
    MAX_STEPS,
    Exhausted,
    JsonSchema,
    NotJson,
    parse_json,
)
from tests.tables import rows

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -0.0, 0.3])
    | st.sampled_from(["", "a", "ab", "b"])
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_counts = st.integers(0, 3)
_names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
_types = st.sampled_from(["null", "boolean", "object", "array", "string", "number", "integer"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    keywords = {
        "type": _types | st.lists(_types, min_size=1, max_size=2, unique=True),
        "const": documents,
        "enum": st.lists(documents, min_size=1, max_size=3),
        "minimum": st.integers(-2, 2),
        "maximum": st.sampled_from([-1, 0.3, 1, 2]),
        "exclusiveMinimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], _counts),
        "pattern": st.sampled_from(["a", "^a$", "b|^$"]),
        "uniqueItems": st.booleans(),
        "prefixItems": lists,
        **dict.fromkeys(["items", "not", "if", "then", "else", "additionalProperties", "propertyNames"], inner),
        **dict.fromkeys(["allOf", "anyOf", "oneOf"], lists),
        **dict.fromkeys(["properties", "dependentSchemas"], named),
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^[bc]"]), inner, max_size=2),
        "required": _names,
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), _names, max_size=2),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }
    contains = st.fixed_dictionaries({"contains": inner}, optional={"minContains": _counts, "maxContains": _counts})
    some = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({keyword: keywords[keyword] for keyword in chosen})
    )
    return some | contains


schemas = st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=6)


def _parsed(schema: Any) -> JsonSchema:
    return JsonSchema.parse(schema if isinstance(schema, str) else json.dumps(schema), "options.format")


@given(schemas, schemas, schemas, documents)
@settings(max_examples=600)
def test_it_agrees_with_another_validator(root: Any, one: Any, two: Any, document: Any) -> None:
    """What fits here fits there, over every keyword that is supported, references included."""
    assume("$ref" not in json.dumps([one, two]))  # so that nothing refers to itself
    if isinstance(root, dict):
        root = {**root, "$defs": {"one": one, "two": two}}

    flaw = _parsed(root).flaw(json.loads(json.dumps(document)))

    assert bool(flaw) is not Draft202012Validator(root).is_valid(document)


@rows(
    ("schema", "says"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("NaN", "is not JSON"),
        ("[]", "neither an object nor a boolean"),
        ({"type": "text"}, "#/type is not one of"),
        ({"type": 5}, "#/type is not one of"),
        ({"properties": []}, "#/properties is not an object"),
        ({"properties": {"a": 5}}, "#/properties/a is neither"),
        ({"anyOf": []}, "#/anyOf is not a list"),
        ({"prefixItems": {}}, "#/prefixItems is not a list"),
        ({"items": [True]}, "#/items is neither"),
        ({"minLength": -1}, "#/minLength is not a whole number"),
        ({"maxItems": 1.5}, "#/maxItems is not a whole number"),
        ({"maxItems": True}, "#/maxItems is not a whole number"),
        ({"minimum": "1"}, "#/minimum is not a number"),
        ({"multipleOf": 0}, "#/multipleOf is not above 0"),
        ({"enum": 5}, "#/enum is not a list"),
        ({"uniqueItems": 1}, "#/uniqueItems is not a boolean"),
        ({"required": "a"}, "requires something other"),
        ({"required": [1]}, "requires something other"),
        ({"dependentRequired": {"a": "b"}}, "requires something other"),
        ({"pattern": 5}, "a pattern that is not a string"),
        ({"pattern": "(?=a)"}, "is none of RE2"),
        ({"pattern": "("}, "is none of RE2"),
        ({"patternProperties": {"(a)\\1": True}}, "is none of RE2"),
        ({"$ref": "https://example.org/schema"}, "outside of the schema"),
        ({"$ref": 5}, "outside of the schema"),
        ({"$ref": "#name"}, "outside of the schema"),
        ({"$ref": "#/$defs/a"}, "which does not exist"),
        ({"$ref": "#/type", "type": "object"}, "is neither"),
        ({"not": {"unevaluatedProperties": False}}, "uses unevaluatedProperties"),
        ({"unevaluatedItems": False}, "uses unevaluatedItems"),
        ({"$dynamicRef": "#a"}, "uses $dynamicRef"),
        ({"items": {"$id": "https://example.org/"}}, "uses $id"),
        ({"$defs": {"a": {"$anchor": "a"}}}, "uses $anchor"),
        ({"dependencies": {}}, "uses dependencies"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "names another draft"),
        ({"$schema": 7}, "names another draft"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, says: str) -> None:
    """Whatever would be ignored, guessed at or fetched is an error that names the place."""
    with pytest.raises(InvalidField) as caught:
        _parsed(schema)

    assert (caught.value.field, caught.value.reason) == ("options.format", "INVALID_SCHEMA")
    assert says in caught.value.message
    assert len(caught.value.message) < 600


@rows(
    ("schema", "document", "flaw"),
    [
        ({"type": "object"}, [], " is not of type object"),
        (
            {"properties": {"a": {"items": {"type": ["string", "null"]}}}},
            {"a": ["", 5]},
            "['a'][1] is not of type string or null",
        ),
        ({"required": ["a" * 100]}, {}, f" lacks '{'a' * 40}...'"),
        ({"additionalProperties": False}, {"b": 1}, "['b'] is not allowed"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, " has the name 'ab', which has 2 characters"),
        ({"minItems": 2}, [1], " has 1 items"),
        ({"uniqueItems": True}, [{"a": [1]}, {"a": [1.0]}], " has an item twice"),
        ({"uniqueItems": True}, [1, True, "1", [1]], ""),
        ({"enum": [1]}, True, " is not one of the accepted values"),
        ({"const": 1}, 1.0, ""),
        ({"multipleOf": 0.1}, 0.3, ""),
        ({"exclusiveMinimum": 2**60}, 2**60 + 1, ""),
        ({"type": "integer"}, 3.0, ""),
        ({"type": "integer"}, 10**400, ""),
        (
            {"$ref": "#/properties/a~1b/items/0~0", "properties": {"a/b": {"items": {"0~": {"type": "null"}}}}},
            5,
            " is not of type null",
        ),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema#", "$id": "x", "format": "email"}, "a", ""),
        ({"prefixItems": [{"$ref": "#/prefixItems/1"}, {"type": "null"}]}, [5], "[0] is not of type null"),
    ],
)
def test_a_flaw_is_named(schema: Any, document: Any, flaw: str) -> None:
    """What does not fit is told with its place, and never repeated at length."""
    assert _parsed(schema).flaw(document) == flaw


def _doubling(levels: int) -> dict[str, Any]:
    names = [str(level) for level in range(levels)]
    both = [{name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2}} for name, after in itertools.pairwise(names)]
    return {"$ref": "#/$defs/0", "$defs": {key: value for one in both for key, value in one.items()} | {names[-1]: {}}}


# Each of these takes exponential or quadratic time, or all of the stack, in some validator.
HOSTILE: list[tuple[Any, str]] = [
    ({"$ref": "#"}, "1"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "1"),
    (_doubling(60), "1"),
    ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "1"),
    ({"items": {"$ref": "#"}}, "[" * 500 + "]" * 500),
    ({"uniqueItems": True}, "[" * 500 + "]" * 500),
    ({"const": json.loads("[" * 500 + "]" * 500)}, "[" * 500 + "]" * 500),
    ({"uniqueItems": True}, json.dumps([{"a": n} for n in range(90_000)])),
    ({"items": {"enum": list(range(5_000))}}, json.dumps(list(range(100_000)))),
    ({"items": {}}, json.dumps([0] * 300_000)),
    ({"contains": {"not": {}}}, json.dumps([0] * 300_000)),
    (
        {"patternProperties": {f"{n}(a|b)*": True for n in range(MAX_PATTERNS)}},
        json.dumps({str(n): 0 for n in range(50_000)}),
    ),
    ({"allOf": [{"pattern": "(a?){200}a{200}b"}] * 200}, json.dumps("a" * 900_000)),
    ({"required": [str(n) for n in range(10_000)]}, json.dumps({str(n): 0 for n in range(10_000)})),
]


@rows("index", range(len(HOSTILE)))
def test_no_document_is_expensive(index: int) -> None:
    """A check ends, by a verdict or by giving up: one that did all the work would never get here."""
    schema, text = HOSTILE[index]
    try:
        found = _parsed(schema).flaw(parse_json(text))
    except Exhausted as error:
        found = str(error)

    assert found == "" or found.startswith(("is nested deeper", "takes more than", " does not match its pattern"))


@pytest.mark.parametrize(("items", "fits"), [(MAX_STEPS - 2, True), (MAX_STEPS - 1, False)])
def test_steps_are_bounded(items: int, fits: bool) -> None:
    """A document is given up at the first step beyond the bound."""
    schema = _parsed({"items": True})

    if fits:
        assert schema.flaw([0] * items) == ""
    else:
        with pytest.raises(Exhausted, match="takes more than"):
            schema.flaw([0] * items)


@pytest.mark.parametrize(("levels", "fits"), [(MAX_NESTING, True), (MAX_NESTING + 1, False)])
def test_nesting_is_bounded(levels: int, fits: bool) -> None:
    """So many schemas may stand within each other, in a schema and along a document."""
    nested: Any = {}
    for _ in range(levels):
        nested = {"not": nested}
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]

    if fits:
        _parsed(nested)
        assert _parsed({"items": {"$ref": "#"}}).flaw([[]]) == ""
        assert _parsed({"uniqueItems": True}).flaw([deep]) == ""
    else:
        with pytest.raises(InvalidField, match="nested deeper"):
            _parsed(nested)
        with pytest.raises(Exhausted, match="nested deeper"):
            _parsed({"uniqueItems": True}).flaw([deep])


@pytest.mark.parametrize(("count", "fits"), [(MAX_PATTERNS, True), (MAX_PATTERNS + 1, False)])
def test_the_patterns_of_a_schema_are_bounded(count: int, fits: bool) -> None:
    """Patterns are compiled and kept: a schema with one more than the limit is refused."""
    schema = {"allOf": [{"pattern": f"a{number}"} for number in range(count)]}

    if fits:
        assert _parsed(schema).flaw("b") == " does not match its pattern"
    else:
        with pytest.raises(InvalidField, match=f"beyond the {MAX_PATTERNS}"):
            _parsed(schema)


@pytest.mark.parametrize(("size", "fits"), [(MAX_SCHEMA_BYTES, True), (MAX_SCHEMA_BYTES + 1, False)])
def test_the_size_of_a_schema_is_bounded(size: int, fits: bool) -> None:
    """A schema of one byte more than the limit is refused."""
    text = json.dumps({"title": "é"}, ensure_ascii=False)
    text = text.replace("é", "é" + "a" * (size - len(text.encode())))

    if fits:
        _parsed(text)
    else:
        with pytest.raises(InvalidField, match="longer than"):
            _parsed(text)


@rows("text", ["", "a", "{", "{'a': 1}", "NaN", "-Infinity", "1 2", "[1,]", "\ufeff1", '"\n"', "\ud800"])
def test_what_is_no_json_is_said(text: str) -> None:
    """Only JSON is read, and nothing that Python reads besides."""
    with pytest.raises(NotJson, match="is not JSON"):
        parse_json(text)


@rows("text", ["[" * 100_000, '{"a":' * 100_000, "1" * (MAX_NUMBER_CHARS + 1), "1e999", "-1e999"])
def test_json_that_cannot_be_held_is_said(text: str) -> None:
    """Depth, digits and magnitude are bounded, with an error of its own: such a document is not wrong."""
    with pytest.raises(Exhausted):
        parse_json(text)


@given(documents)
def test_json_is_read_as_it_is_written(document: Any) -> None:
    """What is written is what is read."""
    assert parse_json(json.dumps(document)) == document
    assert parse_json("1" * MAX_NUMBER_CHARS) == int("1" * MAX_NUMBER_CHARS)
    assert math.copysign(1, parse_json("-0.0")) == -1
