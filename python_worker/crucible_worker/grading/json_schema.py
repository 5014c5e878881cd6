"""JSON schemas (draft 2020-12), checked so that neither a schema nor a document can make a check expensive.

The library `jsonschema` is not used, because schemas come from requests and documents from models. jsonschema
4.26 and this module, in seconds of processor time on the same machine:

| schema and document | jsonschema | here |
|---|---|---|
| pattern `^(a+)+$`, a string of 31 letters | stopped after 10 | 0.004 |
| 24 definitions, each with two references to the next | stopped after 10 | 0.11, then gives up |
| `uniqueItems`, 5,000 objects | stopped after 10 | 0.009 |
| schemas or documents nested 900 deep, a reference to itself | RecursionError | an error that names the bound |
| two properties, one of them a list of ten | 0.0005 | 0.0006, with reading the schema |

It also resolves references in other places and writes documents into its messages. This module counts its work and
gives up, reads patterns as RE2, and only supports references within the schema (`#`, `#/$defs/name`).

Refused are `unevaluatedItems`, `unevaluatedProperties`, dynamic references, anchors, `$id` below the root, and keywords
of older drafts; if an assertion were silently ignored, wrong documents would pass. `format` is an
annotation, as in the draft.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeGuard

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.grading.patterns import BadPattern, Pattern, compiled

__all__ = [
    "MAX_NESTING",
    "MAX_NUMBER_CHARS",
    "MAX_PATTERNS",
    "MAX_SCHEMA_BYTES",
    "MAX_STEPS",
    "TYPES",
    "Exhausted",
    "JsonSchema",
    "NotJson",
    "SchemaCheck",
    "is_number",
    "parse_json",
]

# Checks one JSON document against a parsed schema, and counts the work.

MAX_STEPS = 200_000
"""Steps for one document, such as examined keywords and compared values: 0.2 to 0.8 s."""
MAX_NESTING = 100
"""Nested schemas, including references, in a schema and in a document."""

_PATTERN_WORK_PER_STEP = 500  # instructions of a pattern times bytes that take about as long as a step
_MAX_SHOWN = 40  # characters of a key that a flaw repeats


class Exhausted(Exception):
    """A document cannot be checked within the bounds; the message continues a sentence about it."""


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of JSON is a number; Python takes booleans for some."""
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": lambda value: is_number(value) and value == int(value),
}
"""The check of each type of a schema."""


class SchemaCheck:
    """The check of one document: `flaw` is called once."""

    def __init__(self, references: Mapping[str, Any], patterns: Mapping[str, Pattern]) -> None:
        self._references, self._patterns = references, patterns
        self.steps = 0
        """Steps taken so far, a little over `MAX_STEPS` at most."""

    def flaw(self, schema: Any, value: Any, depth: int) -> str:
        """The first flaw of a value, as the end of a sentence; empty if it fits.

        Raises:
            Exhausted: the check takes more than `MAX_STEPS`, or `MAX_NESTING`.
        """
        self._spend(1)
        if isinstance(schema, bool):
            return "" if schema else " is not allowed"
        if depth > MAX_NESTING:
            raise Exhausted(f"is nested deeper than {MAX_NESTING} schemas")
        self._spend(len(schema))
        return (
            self._plain(schema, value)
            or (self._string(schema, value) if isinstance(value, str) else "")
            or (_number(schema, value) if is_number(value) else "")
            or (self._array(schema, value, depth + 1) if isinstance(value, list) else "")
            or (self._object(schema, value, depth + 1) if isinstance(value, dict) else "")
            or self._combined(schema, value, depth + 1)
        )

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise Exhausted(f"takes more than {MAX_STEPS:,} steps to check")

    def _plain(self, schema: Mapping[str, Any], value: Any) -> str:
        if "type" in schema:
            kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            if not any(TYPES[kind](value) for kind in kinds):
                return f" is not of type {' or '.join(kinds)}"
        if "const" in schema and self._key(schema["const"]) != self._key(value):
            return " is not the required constant"
        if "enum" in schema:
            key = self._key(value)
            if all(self._key(other) != key for other in schema["enum"]):
                return " is not one of the accepted values"
        return ""

    def _key(self, value: Any, depth: int = 0) -> Any:
        """A hashable value that is equal for equal JSON values: 1 equals 1.0, and neither equals true.

        It consists of texts, because Python randomises their hashes; numbers with equal hashes are easy to choose.
        """
        self._spend(1)
        if depth > MAX_NESTING:
            # A hash reads all nested values again at each level.
            raise Exhausted(f"is nested deeper than {MAX_NESTING}")
        if isinstance(value, dict):
            return "object", frozenset((key, self._key(item, depth + 1)) for key, item in value.items())
        if isinstance(value, list):
            return "array", tuple(self._key(item, depth + 1) for item in value)
        if isinstance(value, str):
            return value
        # An integral float may equal an integer with many digits.
        whole = is_number(value) and value == int(value)
        return ("number" if is_number(value) else "word", str(int(value) if whole else value))

    def _string(self, schema: Mapping[str, Any], value: str) -> str:
        if flaw := _count(schema, "Length", len(value), "characters"):
            return flaw
        pattern = schema.get("pattern")
        return " does not match its pattern" if pattern is not None and not self._matches(pattern, value) else ""

    def _matches(self, pattern: str, text: str) -> bool:
        known = self._patterns[pattern]
        # At most four bytes per character.
        self._spend(1 + known.size * len(text) * 4 // _PATTERN_WORK_PER_STEP)
        return known.find(text) is not None

    def _array(self, schema: Mapping[str, Any], value: Sequence[Any], depth: int) -> str:
        if flaw := _count(schema, "Items", len(value), "items"):
            return flaw
        if schema.get("uniqueItems") and len({self._key(item) for item in value}) < len(value):
            return " has an item twice"
        first: Sequence[Any] = schema.get("prefixItems", ())
        for index, (part, item) in enumerate(zip(first, value)):
            if flaw := self.flaw(part, item, depth):
                return f"[{index}]{flaw}"
        if "items" in schema:
            for index in range(len(first), len(value)):
                if flaw := self.flaw(schema["items"], value[index], depth):
                    return f"[{index}]{flaw}"
        if "contains" in schema:
            found = sum(not self.flaw(schema["contains"], item, depth) for item in value)
            if not schema.get("minContains", 1) <= found <= schema.get("maxContains", found):
                return f" contains {found:,} of the required items"
        return ""

    def _object(self, schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> str:
        if flaw := _count(schema, "Properties", len(value), "properties"):
            return flaw
        missing = self._missing(schema.get("required", ()), value)
        for key, names in schema.get("dependentRequired", {}).items():
            missing = missing or (self._missing(names, value) if key in value else "")
        if missing:
            return missing
        for key, item in value.items():
            if "propertyNames" in schema and (flaw := self.flaw(schema["propertyNames"], key, depth)):
                return f" has the name {_shown(key)}, which{flaw}"
            for part in self._schemas_of(schema, key):
                if flaw := self.flaw(part, item, depth):
                    return f"[{_shown(key)}]{flaw}"
        for key, part in schema.get("dependentSchemas", {}).items():
            self._spend(1)
            if key in value and (flaw := self.flaw(part, value, depth)):
                return flaw
        return ""

    def _missing(self, names: Sequence[str], value: Mapping[str, Any]) -> str:
        self._spend(len(names))
        return next((f" lacks {_shown(name)}" for name in names if name not in value), "")

    def _schemas_of(self, schema: Mapping[str, Any], key: str) -> list[Any]:
        """The schemas for the value of a key."""
        self._spend(1)
        named = schema.get("properties", {})
        parts = [named[key]] if key in named else []
        parts += [part for pattern, part in schema.get("patternProperties", {}).items() if self._matches(pattern, key)]
        if not parts and "additionalProperties" in schema:
            parts.append(schema["additionalProperties"])
        return parts

    def _combined(self, schema: Mapping[str, Any], value: Any, depth: int) -> str:
        whole = [self._references[schema["$ref"]]] if "$ref" in schema else []
        if "if" in schema:
            branch = "else" if self.flaw(schema["if"], value, depth) else "then"
            whole.append(schema.get(branch, True))
        for part in (*whole, *schema.get("allOf", ())):
            if flaw := self.flaw(part, value, depth):
                return flaw
        if "anyOf" in schema and all(self.flaw(part, value, depth) for part in schema["anyOf"]):
            return " fits none of the alternatives"
        if "oneOf" in schema:
            fitting = sum(not self.flaw(part, value, depth) for part in schema["oneOf"])
            if fitting != 1:
                return f" fits {fitting} of the alternatives, not exactly one"
        if "not" in schema and not self.flaw(schema["not"], value, depth):
            return " fits an excluded schema"
        return ""


def _count(schema: Mapping[str, Any], what: str, count: int, noun: str) -> str:
    if schema.get(f"min{what}", count) <= count <= schema.get(f"max{what}", count):
        return ""
    return f" has {count:,} {noun}"


def _number(schema: Mapping[str, Any], value: float) -> str:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return " is out of range"
    if value <= schema.get("exclusiveMinimum", -math.inf) or value >= schema.get("exclusiveMaximum", math.inf):
        return " is out of range"
    # Decimals as written: 0.3 is a multiple of 0.1.
    if "multipleOf" in schema and Fraction(repr(value)) % Fraction(repr(schema["multipleOf"])):
        return " is not a multiple of the required number"
    return ""


def _shown(key: str) -> str:
    return repr(key if len(key) <= _MAX_SHOWN else key[:_MAX_SHOWN] + "...")


# Reads a schema, and refuses one that is not supported or too large.

MAX_SCHEMA_BYTES = 100_000
"""Bytes of UTF-8; a larger schema is refused."""
MAX_PATTERNS = 64
"""Patterns of one schema; each may take `crucible_worker.grading.patterns.MAX_PATTERN_MEMORY`."""
MAX_NUMBER_CHARS = 1_000
"""A document with a longer number is not checked."""


_SCHEMA = ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_COUNTS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_REFUSED = (
    "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
    "$anchor", "additionalItems", "dependencies",
)  # fmt: skip
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class NotJson(ValueError):
    """A text is not JSON; the message says why."""


def parse_json(text: str) -> Any:
    """Read JSON, and nothing that JSON does not have.

    Raises:
        NotJson: it is not JSON.
        Exhausted: it is nested deeper than Python's stack, or has a number that is too long or beyond floats.
    """
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise NotJson(f"is not JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise Exhausted("is nested too deep") from None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """A schema that was read completely."""

    root: Any
    """The schema."""
    references: Mapping[str, Any]
    """The target of each `$ref`."""
    patterns: Mapping[str, Pattern]
    """Every pattern in it."""

    @classmethod
    def parse(cls, text: str, field: str) -> JsonSchema:
        """Read a schema.

        Args:
            text: JSON.
            field: its path in the request, for errors.

        Raises:
            InvalidField: it is not a schema, uses an unsupported feature, or is beyond a bound (reason INVALID_SCHEMA).
        """
        if len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
            raise _invalid(field, f"is longer than {MAX_SCHEMA_BYTES:,} bytes")
        try:
            root = parse_json(text)
        except (NotJson, Exhausted) as error:
            raise _invalid(field, str(error)) from None
        if isinstance(root, dict) and str(root.get("$schema", _DRAFT)).rstrip("#") != _DRAFT:
            raise _invalid(field, f"names another draft than {_DRAFT}")
        reader = _SchemaReader(root, field)
        reader.read()
        return cls(root=root, references=reader.references, patterns=reader.patterns)

    def check(self) -> SchemaCheck:
        """A check of one document against it, which counts its steps."""
        return SchemaCheck(self.references, self.patterns)

    def flaw(self, document: Any) -> str:
        """The first flaw of a document, or an empty text.

        Raises:
            Exhausted: the check takes more than `MAX_STEPS`, or `MAX_NESTING`.
        """
        return self.check().flaw(self.root, document, 0)


class _SchemaReader:
    """Reads every nested schema once, and the targets of references."""

    def __init__(self, root: Any, field: str) -> None:
        self._root, self._field = root, field
        self._seen: set[int] = set()
        self._referred: list[tuple[str, Any]] = []
        self.references: dict[str, Any] = {}
        self.patterns: dict[str, Pattern] = {}

    def read(self) -> None:
        """Read all of it.

        Raises:
            InvalidField: a part of it is not a schema, or is refused.
        """
        self._referred.append(("#", self._root))
        while self._referred:
            path, schema = self._referred.pop()
            self._schema(schema, path, 0)

    def _schema(self, schema: Any, path: str, depth: int) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise self._error(path, "is neither an object nor a boolean")
        if id(schema) in self._seen:
            return
        self._seen.add(id(schema))
        if depth > MAX_NESTING:
            raise self._error(path, f"is nested deeper than {MAX_NESTING}")
        for keyword in schema:
            if keyword in _REFUSED or (keyword == "$id" and schema is not self._root):
                raise self._error(path, f"uses {keyword}, which is not supported")
        self._values(schema, path)
        for place, part in self._parts(schema, path):
            self._schema(part, place, depth + 1)
        if "$ref" in schema:
            self._referred.append((str(schema["$ref"])[:_MAX_SHOWN], self._resolve(schema["$ref"], path)))

    def _parts(self, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
        for keyword in _SCHEMA:
            if keyword in schema:
                yield f"{path}/{keyword}", schema[keyword]
        for keyword in _SCHEMA_LISTS:
            parts = schema.get(keyword, [])
            if not isinstance(parts, list) or (keyword in schema and not parts):
                raise self._error(f"{path}/{keyword}", "is not a list of schemas")
            yield from ((f"{path}/{keyword}/{index}", part) for index, part in enumerate(parts))
        for keyword in _SCHEMA_MAPS:
            named = schema.get(keyword, {})
            if not isinstance(named, dict):
                raise self._error(f"{path}/{keyword}", "is not an object of schemas")
            yield from ((f"{path}/{keyword}/{name[:_MAX_SHOWN]}", part) for name, part in named.items())

    def _values(self, schema: Mapping[str, Any], path: str) -> None:
        kinds = schema.get("type", [])
        if not isinstance(kinds, str | list) or not all(
            isinstance(kind, str) and kind in TYPES for kind in ([kinds] if isinstance(kinds, str) else kinds)
        ):
            raise self._error(f"{path}/type", f"is not one of: {', '.join(TYPES)}")
        for keyword in _COUNTS:
            value = schema.get(keyword, 0)
            if not TYPES["integer"](value) or value < 0:
                raise self._error(f"{path}/{keyword}", "is not a whole number from 0")
        for keyword in _LIMITS:
            if not is_number(schema.get(keyword, 1)):
                raise self._error(f"{path}/{keyword}", "is not a number")
        if schema.get("multipleOf", 1) <= 0:
            raise self._error(f"{path}/multipleOf", "is not above 0")
        if not isinstance(schema.get("enum", []), list):
            raise self._error(f"{path}/enum", "is not a list")
        if not isinstance(schema.get("uniqueItems", True), bool):
            raise self._error(f"{path}/uniqueItems", "is not a boolean")
        dependent = schema.get("dependentRequired", {})
        if not isinstance(dependent, dict) or not all(
            map(_are_names, [schema.get("required", []), *dependent.values()])
        ):
            raise self._error(path, "requires something other than a list of names")
        patterns = schema.get("patternProperties", {})
        for pattern in [
            *(patterns if isinstance(patterns, dict) else []),
            *([schema["pattern"]] if "pattern" in schema else []),
        ]:
            self._pattern(pattern, path)

    def _pattern(self, pattern: Any, path: str) -> None:
        if not isinstance(pattern, str):
            raise self._error(path, "has a pattern that is not a string")
        try:
            self.patterns[pattern] = compiled(pattern)
        except BadPattern as error:
            raise self._error(path, f"has a pattern that {error}") from None
        if len(self.patterns) > MAX_PATTERNS:
            raise self._error(path, f"has a pattern beyond the {MAX_PATTERNS} that a schema may have")

    def _resolve(self, reference: Any, path: str) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise self._error(path, "refers to something outside of the schema")
        found = self._root
        for step in reference.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(found):
                found = found[int(key[:9])]
            else:
                raise self._error(path, f"refers to {clipped(reference)}, which does not exist")
        self.references[reference] = found
        return found

    def _error(self, path: str, message: str) -> InvalidField:
        return _invalid(self._field, f"at {path[-200:]} {message}")


def _invalid(field: str, message: str) -> InvalidField:
    return InvalidField(field, message, reason=Reason.INVALID_SCHEMA)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise Exhausted(f"has a number of {len(text):,} characters")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Exhausted(f"has a number beyond 64-bit floats: {text[:_MAX_SHOWN]}")
    return value


def _constant(text: str) -> float:
    raise NotJson(f"is not JSON: it has {text}")
