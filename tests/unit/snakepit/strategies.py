"""Any message of the protos whose tensors, models and options are right, and those whose fields keep their bounds."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.codec.generated import model_ref_to_v1
from crucible_bridge.codec.options import options_to_v1
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.types import parse_model
from crucible_worker.snakepit.arguments import enum_words
from crucible_worker.snakepit.field_schemas import FIELD_SCHEMAS, REQUIRED_FIELDS

F = FieldDescriptor
MODELS = (
    "embedded:arithmetic@320",
    "local:a/b?dtype=float16",
    "openai:lab/m",
    "tinker://r/weights/w",
    "orchestrator:é",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ARRAYS = st.builds(
    lambda values, dtype: np.array(values, dtype),
    st.lists(st.integers(0, 1), max_size=3),
    st.sampled_from(["u1", "?", "i4", "i8", "f2", "f4", "f8"]),
)
SCALARS = {
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_BYTES: st.binary(max_size=5),
    F.TYPE_DOUBLE: st.floats(allow_nan=False),
    F.TYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    F.TYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    F.TYPE_STRING: TEXTS,
    F.TYPE_UINT64: st.integers(0, (1 << 64) - 1),
}
OPTIONS = st.dictionaries(TEXTS, st.booleans() | TEXTS | st.integers(-9, 9) | st.lists(TEXTS, max_size=2), max_size=2)
WHOLE = {
    "Tensor": ARRAYS.map(array_to_v1),
    "ModelRef": st.sampled_from(MODELS).map(lambda text: model_ref_to_v1(parse_model(text))),
    "Struct": OPTIONS.map(lambda options: options_to_v1(options, "options")),
}


def _number_within(field: Any, words: Any) -> st.SearchStrategy[Any]:
    """Numbers that keep to words of JSON schema."""
    least, most, above = (words.get(word) for word in ("minimum", "maximum", "exclusiveMinimum"))
    if field.type != F.TYPE_DOUBLE:
        return st.integers(least, (1 << 31) - 1 if most is None else most)
    return st.floats(
        least if above is None else above,
        most,
        exclude_min=above is not None,
        allow_nan=False,
        allow_infinity=None if most is not None or not words.get("finite") else False,
    )


def values_of(field: Any, depth: int, *, bounded: bool = False) -> st.SearchStrategy[Any]:
    """Any value of a field, or one that keeps the field's bounds."""
    if field.message_type is not None:
        return messages_of(field.message_type, depth + 1, bounded=bounded)
    if field.type == F.TYPE_ENUM:
        return st.sampled_from(list(enum_words(field.enum_type).values()))
    words = FIELD_SCHEMAS.get(f"{field.containing_type.name}.{field.name}", {}) if bounded else {}
    if "enum" in words:
        return st.sampled_from(words["enum"])
    if field.type == F.TYPE_STRING:
        return TEXTS.filter(bool) if words.get("minLength") else TEXTS
    numbers = words.keys() & {"minimum", "maximum", "exclusiveMinimum"}
    return _number_within(field, words) if numbers else SCALARS[field.type]


@st.composite
def messages_of(draw: Any, descriptor: Any, depth: int = 0, *, bounded: bool = False) -> Any:
    """Any message of a type, whose tensors, models and options are right; or one that keeps all bounds."""
    if descriptor.name in WHOLE:
        return draw(WHOLE[descriptor.name])
    message = GetMessageClass(descriptor)()
    taken: set[str] = set()
    required = REQUIRED_FIELDS.get(descriptor.name, ()) if bounded else ()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        wanted = field.name in required or (depth <= 4 and draw(st.booleans()))
        if not wanted or (oneof is not None and oneof.name in taken):
            continue
        taken |= {oneof.name} if oneof is not None else set()
        part = getattr(message, field.name)
        values = values_of(field, depth, bounded=bounded)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            values = values_of(field.message_type.fields_by_name["value"], depth, bounded=bounded)
            for key in draw(st.sets(TEXTS, max_size=2)):
                value = draw(values)
                if hasattr(value, "DESCRIPTOR"):
                    part[key].CopyFrom(value)
                else:
                    part[key] = value
        elif field.is_repeated:
            part.extend(draw(st.lists(values, min_size=int(field.name in required), max_size=2)))
        elif field.message_type is not None:
            part.CopyFrom(draw(values))
        else:
            setattr(message, field.name, draw(values))
    return message
