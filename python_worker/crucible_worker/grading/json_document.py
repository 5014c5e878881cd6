"""Checks one JSON document against a parsed schema, and counts the work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeGuard

from crucible_worker.grading.patterns import Pattern

__all__ = ["MAX_NESTING", "MAX_STEPS", "TYPES", "Exhausted", "SchemaCheck", "is_number"]

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
