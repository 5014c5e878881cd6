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
from collections.abc import Iterator, Mapping
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.grading.json_document import MAX_NESTING, MAX_STEPS, TYPES, Exhausted, SchemaCheck, is_number
from crucible_worker.grading.patterns import BadPattern, Pattern, compiled

__all__ = [
    "MAX_NESTING",
    "MAX_NUMBER_CHARS",
    "MAX_PATTERNS",
    "MAX_SCHEMA_BYTES",
    "MAX_STEPS",
    "Exhausted",
    "JsonSchema",
    "NotJson",
    "parse_json",
]

MAX_SCHEMA_BYTES = 100_000
"""Bytes of UTF-8; a larger schema is refused."""
MAX_PATTERNS = 64
"""Patterns of one schema; each may take `crucible_worker.grading.patterns.MAX_PATTERN_MEMORY`."""
MAX_NUMBER_CHARS = 1_000
"""A document with a longer number is not checked."""

_MAX_SHOWN = 40  # characters of a name that an error repeats

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
                raise self._error(path, f"refers to {reference[:_MAX_SHOWN]!r}, which does not exist")
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
