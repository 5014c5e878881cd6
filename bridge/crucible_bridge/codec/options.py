"""JSON objects <-> google.protobuf.Struct: an evaluator's options.

A Struct has only doubles: integral numbers up to 2**53 are decoded as int, which JSON schemas require. What a double
cannot store exactly is refused, not changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

from crucible_bridge.codec.fields import entry, sendable
from crucible_bridge.errors import InvalidField

__all__ = ["MAX_OPTION_DEPTH", "options_from_v1", "options_to_v1"]

MAX_OPTION_DEPTH = 16
"""Nesting of objects and lists; protobuf itself fails at a depth of about 30."""

_MAX_EXACT = 2**53


def options_to_v1(options: Mapping[str, Any], field: str) -> struct_pb2.Struct:
    """Encode a JSON object.

    Raises:
        InvalidField: a value is not JSON, not finite, an integer beyond 2**53, or nested too deeply.
    """
    return struct_pb2.Struct(
        fields={_key(key, field): _to_value(value, entry(field, str(key)), 1) for key, value in options.items()}
    )


def options_from_v1(message: struct_pb2.Struct, field: str) -> dict[str, Any]:
    """Decode a JSON object; keys in alphabetical order, as a map on the wire has no order.

    Raises:
        InvalidField: a value has no kind, is not finite, or is nested too deeply.
    """
    return {key: _from_value(value, entry(field, key), 1) for key, value in sorted(message.fields.items())}


def _to_value(value: Any, field: str, depth: int) -> struct_pb2.Value:
    _check_depth(depth, field)
    match value:
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NullValue.NULL_VALUE)
        case bool():
            return struct_pb2.Value(bool_value=value)
        case int() | float():
            if isinstance(value, int) and abs(value) > _MAX_EXACT:
                raise InvalidField(field, "is an integer beyond 2**53, which JSON numbers do not hold exactly")
            return struct_pb2.Value(number_value=_finite(float(value), field))
        case str():
            with sendable(field):
                return struct_pb2.Value(string_value=value)
        case Mapping():
            fields = {
                _key(key, field): _to_value(item, entry(field, str(key)), depth + 1) for key, item in value.items()
            }
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))
        case list() | tuple():
            values = [_to_value(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=values))
        case _:
            raise InvalidField(field, f"is a {type(value).__name__}, which JSON does not have")


def _from_value(message: struct_pb2.Value, field: str, depth: int) -> Any:
    _check_depth(depth, field)
    match message.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value":
            return message.bool_value
        case "number_value":
            number = _finite(message.number_value, field)
            return int(number) if number.is_integer() and abs(number) <= _MAX_EXACT else number
        case "string_value":
            return message.string_value
        case "struct_value":
            items = sorted(message.struct_value.fields.items())
            return {key: _from_value(value, entry(field, key), depth + 1) for key, value in items}
        case "list_value":
            values = enumerate(message.list_value.values)
            return [_from_value(value, f"{field}[{index}]", depth + 1) for index, value in values]
        case _:
            raise InvalidField(field, "has no value")


def _key(key: Any, field: str) -> str:
    if not isinstance(key, str):
        raise InvalidField(field, f"has the key {key!r}, keys must be text")
    with sendable(field):
        key.encode()
    return key


def _finite(number: float, field: str) -> float:
    if not math.isfinite(number):
        raise InvalidField(field, f"is {number}, must be finite")
    return number


def _check_depth(depth: int, field: str) -> None:
    if depth > MAX_OPTION_DEPTH:
        raise InvalidField(field, f"is nested more than {MAX_OPTION_DEPTH} deep")
