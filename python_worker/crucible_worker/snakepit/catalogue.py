"""Every tool: its call, how its parameters are read and its result is written, and the JSON schema of the former."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.idempotency import service_modules
from crucible_bridge.types import Dtype
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2
from crucible_worker.snakepit.arguments import NON_FINITE, RESULT_FORMAT, RESULT_FORMATS, TENSORS, Arguments, enum_words
from crucible_worker.snakepit.call_descriptions import CALL_DESCRIPTIONS
from crucible_worker.snakepit.field_schemas import FIELD_SCHEMAS, REQUIRED_FIELDS
from crucible_worker.snakepit.parameters import GRADE_ITEM_NAMES, SAMPLE_NAMES, fields_reader
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.training_parameters import (
    GROUP_NAMES,
    LENGTHS,
    TRAJECTORY_NAMES,
    TRANSITION_NAMES,
    columns_reader,
    read_trajectories,
    write_penalty,
)

__all__ = ["NO_TOOLS", "TOOLS", "Tool", "parameters_schema"]

NO_TOOLS: Mapping[str, str] = {
    "/crucible_bridge.v1.EvaluationService/EvaluateWithOrchestratorModel": "a tool cannot query its caller",
}
"""Calls that are not tools, and why."""

Names = Mapping[str, tuple[str, ...]]
"""Other names of a field, by its name."""


def _write(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    return to_json(message, output)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call as a tool."""

    name: str
    """Its name in Snakepit."""
    path: str
    """The call: "/crucible_bridge.v1.MetricsService/ComputeMeanNLL"."""
    description: str
    """What it does, one sentence."""
    request: Any
    """The request's message."""
    response: Any
    """The message of the reply, or of each reply of a stream."""
    streams: bool
    """Whether its reply is a stream."""
    read: Callable[[Arguments], Any]
    """Makes the request, or its bytes, from the parameters."""
    write: Callable[[Arguments, Any, Output], dict[str, Any]]
    """Makes plain values from a reply."""
    part: str
    """The field of the request that the parameters fill, if they do not fill the request itself."""
    names: Names
    """Other names of fields, by field."""
    single: tuple[str, ...]
    """List fields that also accept a single value."""
    arrays: Names
    """Parameters that are arrays of all sequences, and their other names."""


def _tool(
    name: str,
    service: ServiceDescriptor,
    method: str,
    *,
    read: Callable[[Arguments], Any] | None = None,
    write: Callable[[Arguments, Any, Output], dict[str, Any]] = _write,
    part: str = "",
    names: Names | None = None,
    arrays: Names | None = None,
    single: tuple[str, ...] = (),
    correlated: bool = False,
) -> Tool:
    found, path = service.methods_by_name[method], f"/{service.full_name}/{method}"
    request, names, arrays = GetMessageClass(found.input_type), names or {}, arrays or {}
    if read is None and arrays:
        read = columns_reader(request, arrays, names=names)
    return Tool(
        name=name,
        path=path,
        description=CALL_DESCRIPTIONS[path],
        request=request,
        response=GetMessageClass(found.output_type),
        streams=found.server_streaming,
        read=read or fields_reader(request, part=part, names=names, single=single, correlated=correlated),
        write=write,
        part=part,
        names=names,
        single=single,
        arrays=arrays,
    )


def _write_grades(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    """Write grades, each with the unchanged id of its item: a number stays a number."""
    value = to_json(message, output)
    for grade, given in zip(value["grades"], arguments.noted.get("ids", ())):
        grade["id"] = given
    return value


_EVALUATION = evaluation_pb2.DESCRIPTOR.services_by_name["EvaluationService"]
_METRICS = metrics_pb2.DESCRIPTOR.services_by_name["MetricsService"]
_GRADING = grading_pb2.DESCRIPTOR.services_by_name["GradingService"]
_MODELS = models_pb2.DESCRIPTOR.services_by_name["ModelService"]

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ITEMS: Names = {"items": ("pairs",)}
_POLICY: Names = {"logprobs": (), "mask": ("masks",)}

_NAMED: tuple[Tool, ...] = (
    _tool("evaluate", _EVALUATION, "Evaluate", single=("evaluators",), correlated=True),
    _tool("start_evaluation", _EVALUATION, "StartEvaluation", part="request", single=("evaluators",), correlated=True),
    _tool("register_plan", _EVALUATION, "RegisterPlan", part="plan"),
    _tool("kl_sample_train", _METRICS, "ComputeKLSampleTrain", arrays={**_POLICY, "training_logprobs": ("training",)}),
    _tool("kl_post_update", _METRICS, "ComputeKLPostUpdate", arrays={**_POLICY, "updated_logprobs": ("updated",)}),
    _tool(
        "incorporate_kl_penalty",
        _METRICS,
        "IncorporateKLPenalty",
        arrays={**_POLICY, "advantages": (), "base_logprobs": ("base",)},
        names={"kl_penalty_coef": ("coef",), "kl_discount_factor": ("discount",)},
        write=write_penalty,
    ),
    _tool("mean_nll", _METRICS, "ComputeMeanNLL", arrays={"logprobs": (), "weights": ()}),
    _tool("trajectory_metrics", _METRICS, "ComputeTrajectoryMetrics", read=read_trajectories),
    _tool("dpo_metrics", _METRICS, "ComputeDPOMetrics"),
    _tool("sampling_client_metrics", _METRICS, "ComputeSamplingClientMetrics"),
    _tool("classification_metrics", _METRICS, "ComputeClassificationMetrics"),
    _tool("pass_at_k", _METRICS, "ComputePassAtK"),
    _tool("grade_math", _GRADING, "GradeMath", names={**_ITEMS, "policy": ("options",)}, write=_write_grades),
    _tool("score", _GRADING, "Score", names=_ITEMS, write=_write_grades),
    _tool("sample", _MODELS, "Sample", names={"items": ("prompts",)}),
)
"""Tools whose name or parameters are shorter than those of their call."""


def _others() -> Iterator[Tool]:
    """The calls that need nothing except their protos, by their own names."""
    done = {*(tool.path for tool in _NAMED), *NO_TOOLS}
    for module in service_modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if f"/{service.full_name}/{method.name}" not in done:
                    yield _tool(_WORDS.sub("_", method.name).lower(), service, method.name)


TOOLS: tuple[Tool, ...] = (*_NAMED, *_others())
"""Every call of the worker except NO_TOOLS."""


Schema = dict[str, Any]
# JSON schemas (draft 2020-12), made from the messages' descriptors and bounds.

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
        case "Conversation":
            forms.append(properties["messages"])
        case "ToolSpec":
            forms.append({"type": "object", "properties": {"function": {"type": "object"}}, "required": ["function"]})
        case "InlineDataset" | "ChoiceScorer" | "Marks" | "Tags" | "TensorList":
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
