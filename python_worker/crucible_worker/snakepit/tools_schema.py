"""The JSON schema (draft 2020-12) of a tool's parameters, made from the messages' descriptors and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from crucible_bridge.types import Dtype
from crucible_worker.snakepit.arguments import RESULT_FORMAT, RESULT_FORMATS, TENSORS
from crucible_worker.snakepit.field_schemas import FIELD_SCHEMAS, REQUIRED_FIELDS
from crucible_worker.snakepit.tools_catalogue import Tool
from crucible_worker.snakepit.tools_metrics import LENGTHS
from crucible_worker.snakepit.tools_short_forms import GRADE_ITEM_NAMES, SAMPLE_NAMES
from crucible_worker.snakepit.tools_trajectories import GROUP_NAMES, TRAJECTORY_NAMES, TRANSITION_NAMES
from crucible_worker.snakepit.tools_values import NON_FINITE, enum_words

__all__ = ["parameters_schema"]

Schema = dict[str, Any]
F = FieldDescriptor

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_BYTES: Schema = {
    "anyOf": [
        _TEXT,
        *(
            {"type": "object", "properties": {key: _TEXT}, "required": [key], "additionalProperties": False}
            for key in ("base64", "binary")
        ),
    ]
}
_DESCRIPTION: Schema = {
    "type": "object",
    "description": "An array in a binary parameter, or in base64.",
    "properties": {
        "dtype": {"type": "string", "examples": [str(dtype) for dtype in Dtype]},
        "shape": {"type": "array", "items": _COUNT},
        "binary": {"type": "string", "description": "Name of the binary parameter; the array's name if absent."},
        "offset": {"type": "integer", "minimum": 0, "description": "Bytes before the array."},
        "data": {"type": "string", "description": "Base64, instead of a binary parameter."},
    },
    "required": ["dtype"],
    "additionalProperties": False,
}
_ARRAY = "array"
_OF_ALL = frozenset({"minItems", "maxItems", "maxProperties", "propertyNames", "default"})
"""Schema keywords about a field as a whole; others are about each of its values."""


def parameters_schema(tool: Tool) -> Schema:
    """The schema of a tool's parameters; null counts as absent everywhere, and is not in the schema."""
    definitions: dict[str, Schema] = {}
    descriptor: Any = tool.request.DESCRIPTOR
    if tool.part:
        descriptor = descriptor.fields_by_name[tool.part].message_type
    properties: dict[str, Schema] = {}
    for field in descriptor.fields:
        for name in (field.name, *tool.names.get(field.name, ())):
            properties[name] = _field(field, definitions)
            if field.name in tool.single:
                properties[name] = {"anyOf": [properties[name], _value(field, definitions)]}
    for name, others in tool.arrays.items():
        for each in (name, *others):
            # A field of the same name accepts its own form as well.
            forms = [_reference(_ARRAY, definitions), *([properties[each]] if each in properties else ())]
            properties[each] = {"anyOf": forms} if len(forms) > 1 else forms[0]
    if tool.arrays:
        properties[LENGTHS] = _reference(_ARRAY, definitions)
    if tool.name == "trajectory_metrics":
        properties["groups"] = {"type": "array", "items": _GROUP}
    if _ARRAY in definitions:
        properties[TENSORS] = {"type": "object", "additionalProperties": _DESCRIPTION}
    properties[RESULT_FORMAT] = {"enum": list(RESULT_FORMATS)}
    schema = _object(properties, descriptor.name, {**tool.names, **tool.arrays})
    return {**schema, "$defs": definitions} if definitions else schema


def _object(
    names: Mapping[str, Schema], message: str = "", others: Mapping[str, Sequence[str]] | None = None
) -> Schema:
    """The object of a message's fields; required ones may be given by other names."""
    schema: Schema = {"type": "object", "properties": dict(names), "additionalProperties": False}
    if required := REQUIRED_FIELDS.get(message):
        schema["allOf"] = [
            {"anyOf": [{"required": [each]} for each in (name, *(others or {}).get(name, ()))]} for name in required
        ]
    return schema


_METRIC_VALUES: Schema = {"type": "object", "additionalProperties": {"anyOf": [*_NUMBER["anyOf"], {"type": "null"}]}}
_TRANSITION = _object(
    {
        **{key: {} for key in TRANSITION_NAMES},
        "ob": {"description": "Tokens, or how many."},
        "ac": {"description": "Tokens, or how many."},
        "reward": _NUMBER,
        "metrics": _METRIC_VALUES,
    }
)
_TRAJECTORY = _object({**{key: {} for key in TRAJECTORY_NAMES}, "transitions": {"type": "array", "items": _TRANSITION}})
_GROUP_FORMS: Mapping[str, Schema] = {
    "trajectories": {"type": "array", "items": _TRAJECTORY},
    "final_rewards": {"type": "array", "items": _NUMBER},
    "metrics": {"type": "array", "items": _METRIC_VALUES},
    "tags": {"type": "array", "items": _TEXT},
}
_GROUP = _object({name: _GROUP_FORMS[ours] for name, ours in GROUP_NAMES.items()})


def _reference(name: str, definitions: dict[str, Schema]) -> Schema:
    """The schema of an array or a message by its name, which is added to the definitions."""
    if name == _ARRAY and name not in definitions:
        numbers: Schema = {
            "type": "array",
            "items": {"anyOf": [*_NUMBER["anyOf"], {"type": "boolean"}, {"$ref": f"#/$defs/{name}"}]},
        }
        named: Schema = {"type": "string", "description": f"Name of an array in {TENSORS}."}
        definitions[name] = {"anyOf": [numbers, named, _DESCRIPTION]}
    return {"$ref": f"#/$defs/{name}"}


def _field(field: FieldDescriptor, definitions: dict[str, Schema]) -> Schema:
    words = {word: given for word, given in _words(field).items() if word in _OF_ALL}
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        values = _value(field.message_type.fields_by_name["value"], definitions)
        longest = words.get("propertyNames", {})  # bounds keys and values alike
        return {"type": "object", "additionalProperties": {**values, **longest}, **words}
    value = _value(field, definitions)
    return {**({"type": "array", "items": value} if field.is_repeated else value), **words}


def _words(field: FieldDescriptor) -> Mapping[str, Any]:
    """The bounds of a field in the protos' options."""
    return FIELD_SCHEMAS.get(".".join(field.full_name.split(".")[-2:]), {})


def _value(field: FieldDescriptor, definitions: dict[str, Schema]) -> Schema:
    """The schema of one of a field's values."""
    words = {word: given for word, given in _words(field).items() if word not in _OF_ALL}
    finite = words.pop("finite", False)
    if field.message_type is not None:
        return _message(field.message_type, definitions)
    if field.type == F.TYPE_ENUM:
        return {"type": "string", "examples": list(enum_words(field.enum_type))}
    if field.type == F.TYPE_BOOL:
        return {"type": "boolean"}
    if field.type == F.TYPE_DOUBLE:
        if not words and not finite:
            return _NUMBER
        number = {"type": "number", **words}
        # Of the numbers that JSON lacks, only infinity is above a minimum.
        return number if finite or "maximum" in words else {"anyOf": [number, {"const": "Infinity"}]}
    if field.type == F.TYPE_BYTES:
        return _BYTES
    return {**(_TEXT if field.type == F.TYPE_STRING else {"type": "integer"}), **words}


def _message(descriptor: Descriptor, definitions: dict[str, Schema]) -> Schema:
    """The schema of a message: its fields, and its short forms."""
    name = descriptor.name
    if name == "Struct":
        return {"type": "object"}
    if name == "Tensor":
        return _reference(_ARRAY, definitions)
    if name not in definitions:
        definitions[name] = {}  # it may contain itself
        properties = {field.name: _field(field, definitions) for field in descriptor.fields}
        definitions[name] = _with_short_forms(name, properties, definitions)
    return _reference(name, definitions)


def _with_short_forms(name: str, properties: dict[str, Schema], definitions: dict[str, Schema]) -> Schema:
    match name:
        case "GradeItem":
            properties["id"] = {"type": ["string", "integer"]}
            properties["targets"] = {"anyOf": [_TEXT, properties["targets"]]}
            properties |= {other: properties[ours] for other, ours in GRADE_ITEM_NAMES.items()}
        case "Sample":
            properties["targets"] = {"anyOf": [_TEXT, properties["targets"]]}
            properties |= {other: properties[ours] for other, ours in SAMPLE_NAMES.items()}
            properties["input"] = {"anyOf": [_TEXT, properties["conversation"], properties["datum"]]}
        case "SampleItem" | "LogprobsItem":
            properties["prompt"] = {"anyOf": [_TEXT, properties["conversation"], properties["model_input"]]}
        case "FormatScorer":
            properties["json_schema"] = {"type": ["string", "object"]}
    forms: list[Schema] = [_object(properties, name)]
    match name:
        case "ModelRef" | "EvaluatorSpec" | "ScoreOptions":
            forms.append(_TEXT)
        case "Dataset":
            forms += [_TEXT, properties["inline"]]
        case "Conversation" | "InlineDataset" | "ChoiceScorer" | "Marks" | "Tags" | "TensorList":
            forms += properties.values()
        case "ModelInput":
            forms.append(_reference(_ARRAY, definitions))
        case "LogprobSource":
            forms += properties.values()
        case "SampleItem" | "LogprobsItem":
            forms.append(properties["prompt"])
        case "ForwardItem":
            forms += properties.values()
    return {"anyOf": forms} if len(forms) > 1 else forms[0]
