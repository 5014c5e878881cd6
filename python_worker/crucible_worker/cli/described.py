"""Options of a JSON schema in words: for lists of evaluators and graders, and for pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["COLUMNS", "NEEDED", "option_rows", "value_of"]

COLUMNS = ("option", "value", "default", "about")
"""Of `option_rows`."""
NEEDED = "needed"
"""Shown instead of the default of a required option."""

_KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}
_MANY = {"boolean": "values", "integer": "whole numbers", "number": "numbers", "string": "texts", "object": "objects"}


def option_rows(schema: Mapping[str, Any]) -> Sequence[tuple[str, str, str, str]]:
    """What an object's schema says about each option: its name, its values, its default, and its description."""
    required = schema.get("required", ())
    return [
        (
            name,
            value_of(rule),
            NEEDED if name in required else _written(rule["default"]) if "default" in rule else "",
            rule.get("description", ""),
        )
        for name, rule in schema.get("properties", {}).items()
    ]


def value_of(rule: Mapping[str, Any]) -> str:
    """The values that a rule accepts, with their bounds."""
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    named = [_KINDS.get(kind, kind) for kind in kinds if kind != "null"]
    value = " or ".join(named)
    if "enum" in rule:
        value = _either([str(each) for each in rule["enum"]])
    examples = f"such as {rule['examples'][0]}" if rule.get("examples") else ""
    value = " ".join(filter(None, (value, _bounds(rule), examples)))
    return f"{value} or null" if "null" in kinds else value


def _bounds(rule: Mapping[str, Any]) -> str:
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"from {least:,} to {most:,}"
    words = [
        f"{word} {rule[key]:,}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if key in rule
    ]
    return " ".join(filter(None, [*words, *(_length(rule, kind) for kind in _LENGTHS)]))


def _length(rule: Mapping[str, Any], kind: str) -> str:
    what, unit = _LENGTHS[kind], "characters"
    if kind != "string":
        each = rule.get("items", {}).get("type", "")
        unit = _MANY.get(each, "entries") if isinstance(each, str) else "entries"
    least, most = rule.get(f"min{what}"), rule.get(f"max{what}")
    if least is not None and most is not None:
        return f"of {least:,} to {most:,} {unit}"
    if most is not None:
        return f"of at most {most:,} {unit}"
    return "" if least is None else "that is not empty" if least == 1 else f"of at least {least:,} {unit}"


def _either(values: Sequence[str]) -> str:
    *most, last = values
    return f"{', '.join(most)} or {last}" if most else last


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, dict | list) and not value:
        return "none"
    return json.dumps(value)
