"""Requested evaluators, and the schemas of their options, <-> v1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crucible_bridge.codec.fields import EnumPair, at_most_bytes, child, made, of_type, sendable
from crucible_bridge.codec.options import options_from_v1, options_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluatorSpec, Record, bounds
from crucible_bridge.v1 import evaluation_pb2

__all__ = [
    "evaluator_spec_from_v1",
    "evaluator_spec_to_v1",
    "record_from_v1",
    "record_to_v1",
    "schema_from_v1",
    "schema_to_v1",
]

_RECORD = EnumPair(Record, evaluation_pb2.Record, "RECORD_")


def evaluator_spec_to_v1(spec: EvaluatorSpec, field: str = "evaluator") -> evaluation_pb2.EvaluatorSpec:
    """Encode one evaluator of a request.

    Raises:
        InvalidField: an option is not JSON, or text is no Unicode.
    """
    of_type(spec, EvaluatorSpec, field)
    with sendable(field):
        options = options_to_v1(spec.options, child(field, "options")) if spec.options else None
    return made(evaluation_pb2.EvaluatorSpec, field, kind=spec.kind, name=spec.name, options=options)


def evaluator_spec_from_v1(message: evaluation_pb2.EvaluatorSpec, field: str) -> EvaluatorSpec:
    """Decode one evaluator of a request; its kind, and its name if it has one, must not be empty."""
    if not message.kind:
        raise InvalidField(child(field, "kind"), "is empty")
    at_most_bytes(message.kind, bounds.EVALUATOR_SPEC_KIND_MAX_BYTES, child(field, "kind"))
    name = message.name if message.HasField("name") else None
    if name is not None:
        if not name:
            raise InvalidField(child(field, "name"), "is empty, leave it unset for bare keys")
        at_most_bytes(name, bounds.EVALUATOR_SPEC_NAME_MAX_BYTES, child(field, "name"))
    return EvaluatorSpec(
        kind=message.kind, name=name, options=options_from_v1(message.options, child(field, "options"))
    )


def record_to_v1(record: Record) -> Any:
    """Encode what is recorded; the default is everything.

    Raises:
        InvalidField: it is not one of the values.
    """
    number = _RECORD.sent(record, "record")
    return 0 if number in (None, evaluation_pb2.RECORD_FULL) else number


def record_from_v1(number: int, field: str) -> Record:
    """Decode what is recorded; the default is everything.

    Raises:
        InvalidField: it is a number that this version does not know.
    """
    return _RECORD.from_v1(number, field) if number else Record.FULL


def schema_to_v1(schema: Mapping[str, Any]) -> str:
    """Encode a JSON schema as text."""
    return json.dumps(schema, allow_nan=False)


def schema_from_v1(text: str, field: str) -> dict[str, Any]:
    """Decode a JSON schema.

    Raises:
        InvalidField: the text is no JSON object.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidField(field, f"is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise InvalidField(field, "is not a JSON object")
    return schema
