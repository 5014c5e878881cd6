"""Short forms of messages in JSON: a model as text, a tensor as numbers, a conversation as its messages.

Each function fills a message with a value, or leaves a JSON object of the message's own fields to `fill`. Paths in
errors name the fields that the message has, whichever form was used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crucible_bridge.codec.data import array_to_v1, model_input_to_v1
from crucible_bridge.codec.datasets import dataset_to_v1
from crucible_bridge.codec.fields import child
from crucible_bridge.codec.models import model_ref_to_v1
from crucible_bridge.codec.options import options_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, ModelInput, parse_model
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2, types_pb2
from crucible_worker.snakepit.arguments import Arguments, Fill
from crucible_worker.snakepit.tools_values import read_text, wrong_type

__all__ = ["GRADE_ITEM_NAMES", "SAMPLE_NAMES", "SHORT_FORMS"]

GRADE_ITEM_NAMES: Mapping[str, str] = {"pred": "answer", "gold": "targets", "target": "targets"}
"""Other names for the fields of an item to grade."""

SAMPLE_NAMES: Mapping[str, str] = {"target": "targets", "messages": "conversation"}
"""Other names for the fields of a sample; "input" is any of its inputs."""

Short = Callable[[Any, Any, str, "Arguments", "Fill"], None]
"""Fills a message with a value at a path, given the arrays, and the function that fills messages field by field."""


def _tensor(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    message.CopyFrom(array_to_v1(arguments.array(value, _last(field), field)))


def _last(field: str) -> str:
    """The last part of a path: the name of a field, or the key of an entry."""
    return field.removesuffix('"]').rpartition('["')[2] if field.endswith('"]') else field.rpartition(".")[2]


def _tensors(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"tensors": value} if isinstance(value, list | tuple) else value, field, arguments)


def _model(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if not isinstance(value, str):
        return fill(message, value, field, arguments)
    try:
        return message.CopyFrom(model_ref_to_v1(parse_model(read_text(value, field))))
    except InvalidField as error:
        raise _moved(error, "model", field) from None


def _moved(error: InvalidField, old: str, new: str) -> InvalidField:
    """An error with a path that begins at another field."""
    return InvalidField(new + error.field.removeprefix(old), error.message, reason=error.reason)


def _logprob_source(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, list | tuple):
        value = {"given": value}
    elif isinstance(value, str) or (isinstance(value, Mapping) and value and not value.keys() & {"given", "model"}):
        value = {"model": value}
    fill(message, value, field, arguments)


def _evaluator(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"kind": value} if isinstance(value, str) else value, field, arguments)


def _struct(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    message.CopyFrom(options_to_v1(value, field))


def _dataset(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, list | tuple):
        return fill(message, {"inline": {"samples": value}}, field, arguments)
    if not isinstance(value, str):
        return fill(message, value, field, arguments)
    try:
        return message.CopyFrom(dataset_to_v1(Dataset.of(read_text(value, field)), field))
    except InvalidField as error:
        raise _moved(error, "dataset", field) from None


def _inline(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"samples": value} if isinstance(value, list | tuple) else value, field, arguments)


def _sample(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping):
        value = _renamed(value, SAMPLE_NAMES, field)
        if (given := value.get("input")) is not None:
            kind = "text" if isinstance(given, str) else "conversation" if isinstance(given, list) else "datum"
            if kind in value:
                raise InvalidField(child(field, kind), "is given with input")
            value[kind] = given
        value.pop("input", None)
        value = _listed(value, "targets")
    fill(message, value, field, arguments)


def _renamed(value: Mapping[str, Any], names: Mapping[str, str], field: str) -> dict[str, Any]:
    """The given entries, by the message's names for them."""
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        if item is None:
            continue
        if (ours := names.get(key, key)) in renamed:
            raise InvalidField(child(field, key), "is given with another name for it")
        renamed[ours] = item
    return renamed


def _listed(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """One text in place of a list."""
    given = value.get(key)
    return {**value, key: [given]} if isinstance(given, str) else dict(value)


def _conversation(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"messages": value} if isinstance(value, list | tuple) else value, field, arguments)


def _model_input(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping) and "chunks" in value:
        return fill(message, value, field, arguments)
    tokens = arguments.array(value, _last(field), field)
    if not isinstance(tokens, np.ndarray):
        raise InvalidField(field, f"holds {tokens.dtype}, not token ids")
    try:
        return message.CopyFrom(model_input_to_v1(ModelInput.of(tokens)))
    except InvalidField as error:
        raise _moved(error, "model_input", field) from None


def _tags(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"tags": value} if isinstance(value, list | tuple) else value, field, arguments)


def _grade_item(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping):
        value = _listed(_renamed(value, GRADE_ITEM_NAMES, field), "targets")
        given = value.get("id")
        # Returned unchanged: the caller's own key, text or a number.
        arguments.noted.setdefault("ids", []).append("" if given is None else given)
        if isinstance(given, int) and not isinstance(given, bool):
            value["id"] = str(given)
    fill(message, value, field, arguments)


def _sample_item(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping) and (prompt := value.get("prompt")) is not None:
        value = {key: item for key, item in value.items() if item is not None}
        if other := value.keys() & {"text", "conversation", "model_input"}:
            raise InvalidField(child(field, "prompt"), f"is given with {min(other)}")
        rest = {key: item for key, item in value.items() if key != "prompt"}
        value = {**rest, _prompt_kind(prompt): prompt}
    elif not isinstance(value, Mapping):
        value = {_prompt_kind(value): value}
    fill(message, value, field, arguments)


def _forward_item(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping):
        value = value if value.keys() <= {"datum", "text", "conversation"} else {"datum": value}
    else:
        value = {"text" if isinstance(value, str) else "conversation": value}
    fill(message, value, field, arguments)


def _prompt_kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    messages = isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)
    return "conversation" if messages else "model_input"


def _score_options(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {value: {}} if isinstance(value, str) else value, field, arguments)


def _choices(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"choices": value} if isinstance(value, list | tuple) else value, field, arguments)


def _marks(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"marks": value} if isinstance(value, list | tuple) else value, field, arguments)


def _format(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping) and isinstance(schema := value.get("json_schema"), Mapping):
        try:
            value = {**value, "json_schema": json.dumps(schema)}
        except TypeError as error:  # msgpack has bytes, and keys that are not text
            raise InvalidField(child(field, "json_schema"), "has values that JSON does not have") from error
    fill(message, value, field, arguments)


SHORT_FORMS: Mapping[str, Short] = {
    types_pb2.Conversation.DESCRIPTOR.full_name: _conversation,
    types_pb2.ModelInput.DESCRIPTOR.full_name: _model_input,
    types_pb2.ModelRef.DESCRIPTOR.full_name: _model,
    types_pb2.Tensor.DESCRIPTOR.full_name: _tensor,
    evaluation_pb2.Dataset.DESCRIPTOR.full_name: _dataset,
    evaluation_pb2.EvaluatorSpec.DESCRIPTOR.full_name: _evaluator,
    evaluation_pb2.InlineDataset.DESCRIPTOR.full_name: _inline,
    evaluation_pb2.Sample.DESCRIPTOR.full_name: _sample,
    grading_pb2.ChoiceScorer.DESCRIPTOR.full_name: _choices,
    grading_pb2.FormatScorer.DESCRIPTOR.full_name: _format,
    grading_pb2.GradeItem.DESCRIPTOR.full_name: _grade_item,
    grading_pb2.Marks.DESCRIPTOR.full_name: _marks,
    grading_pb2.ScoreOptions.DESCRIPTOR.full_name: _score_options,
    metrics_pb2.LogprobSource.DESCRIPTOR.full_name: _logprob_source,
    metrics_pb2.Tags.DESCRIPTOR.full_name: _tags,
    metrics_pb2.TensorList.DESCRIPTOR.full_name: _tensors,
    models_pb2.ForwardItem.DESCRIPTOR.full_name: _forward_item,
    models_pb2.LogprobsItem.DESCRIPTOR.full_name: _sample_item,
    models_pb2.SampleItem.DESCRIPTOR.full_name: _sample_item,
    "google.protobuf.Struct": _struct,
}
"""By the full name of a message, the function that fills it."""
