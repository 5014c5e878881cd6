"""Bounds of requests' fields in JSON schema's words, for tools: `snakepit/field_schemas.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generator.schema import Field, Schema
from generator.sources import HEADER

__all__ = ["make"]

MODULE = '''{header}
"""What fields of requests may hold, in JSON schema's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FIELD_SCHEMAS", "REQUIRED_FIELDS"]

FIELD_SCHEMAS: Mapping[str, Mapping[str, Any]] = {{
{fields}
}}
"""By message and field, what a schema says besides the type: of a repeated field about the list, and of each value."""

REQUIRED_FIELDS: Mapping[str, tuple[str, ...]] = {{
{required}
}}
"""By message, the fields that must be given."""
'''
NUMBERS = {"least": "minimum", "most": "maximum", "above": "exclusiveMinimum"}


def make(schema: Schema, into: Path) -> dict[str, str]:
    """The module's text."""
    fields, required = [], []
    for name in schema.asked():
        message = schema.messages[name]
        fields += [
            f'    "{name}.{field.name}": {words!r},' for field in message.fields if (words := dict(_words(field)))
        ]
        if needed := tuple(field.name for field in message.fields if _is_required(field)):
            required.append(f'    "{name}": {needed!r},')
    text = MODULE.format(header=HEADER, fields="\n".join(fields), required="\n".join(required))
    return {"field_schemas.py": text}


def _is_required(field: Field) -> bool:
    """Whether absence is refused: as such, or as the 0 that an absent number is."""
    bounds, number = field.bounds, field.kind in ("int32", "int64", "uint32", "uint64", "double", "float")
    zero = (bounds.HasField("least") and bounds.least > 0) or (bounds.HasField("above") and bounds.above >= 0)
    return bounds.required or (number and zero and not (field.optional or field.repeated))


def _words(field: Field) -> Iterator[tuple[str, Any]]:
    bounds, whole = field.bounds, field.kind not in ("double", "float")
    for ours, word in NUMBERS.items():
        if bounds.HasField(ours):
            yield word, int(getattr(bounds, ours)) if whole else getattr(bounds, ours)
    if bounds.finite:
        yield "finite", True
    yield from _counts(field)
    # Text in UTF-8 has no more characters than bytes.
    if longest := bounds.max_chars or bounds.max_bytes:
        yield "maxLength", longest
    text = field.kind == "string"
    if text and (bounds.not_empty or (bounds.required and not field.repeated)):
        yield "minLength", 1
    if bounds.one_of:
        absent = () if field.optional or "" in bounds.one_of else ("",)
        yield "enum", [*bounds.one_of, *absent]
    if bounds.default_value:
        yield "default", json.loads(bounds.default_value)


def _counts(field: Field) -> Iterator[tuple[str, Any]]:
    bounds = field.bounds
    if field.repeated and bounds.required:
        yield "minItems", 1
    if bounds.max_count:
        yield "maxProperties" if field.kind == "map" else "maxItems", bounds.max_count
    if field.kind == "map" and bounds.max_bytes:
        yield "propertyNames", {"maxLength": bounds.max_bytes}
