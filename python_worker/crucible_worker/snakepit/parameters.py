"""A tool's parameters -> the request of its call, by the message's descriptor.

JSON with the protos' names, in snake_case, with words for enums ("completed"), text for bytes, lists of numbers for
tensors; and short forms of some messages. Null counts as absent. An unknown parameter or a wrong type is refused, with
its path.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge.codec.content import model_input_to_v1, tool_spec_to_v1
from crucible_bridge.codec.datasets import dataset_to_v1
from crucible_bridge.codec.evaluation import MAX_ID_BYTES
from crucible_bridge.codec.fields import child, entry
from crucible_bridge.codec.generated import model_ref_to_v1
from crucible_bridge.codec.options import options_to_v1
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Dataset, ModelInput, parse_model, tool_from_json
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2, types_pb2
from crucible_worker.snakepit.arguments import (
    Arguments,
    Fill,
    enum_words,
    read_array,
    read_boolean,
    read_integer,
    read_member,
    read_number,
    read_text,
    wrong_type,
)

__all__ = ["GRADE_ITEM_NAMES", "SAMPLE_NAMES", "SHORT_FORMS", "fields_reader", "fill", "read_bytes", "take_fields"]


# Short forms of messages in JSON: a model as text, a tensor as numbers, a conversation as its messages.
#
# Each function fills a message with a value, or leaves a JSON object of the message's own fields to `fill`. Paths in
# errors name the fields that the message has, whichever form was used.

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
        value = _list_of(value, "targets")
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


def _list_of(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """One text in place of a list."""
    given = value.get(key)
    return {**value, key: [given]} if isinstance(given, str) else dict(value)


def _conversation(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    fill(message, {"messages": value} if isinstance(value, list | tuple) else value, field, arguments)


def _tool_spec(message: Any, value: Any, field: str, arguments: Arguments, fill: Fill) -> None:
    if isinstance(value, Mapping) and ("function" in value or isinstance(value.get("parameters"), Mapping)):
        # The form of OpenAI's API; the message has schemas as JSON.
        message.CopyFrom(tool_spec_to_v1(tool_from_json(value, field)))
    else:
        fill(message, value, field, arguments)


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
        value = _list_of(_renamed(value, GRADE_ITEM_NAMES, field), "targets")
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
    types_pb2.ToolSpec.DESCRIPTOR.full_name: _tool_spec,
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


F = FieldDescriptor
_INTEGERS: Mapping[int, tuple[int, int]] = {
    F.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_UINT32: (0, (1 << 32) - 1),
    F.TYPE_UINT64: (0, (1 << 64) - 1),
}


def fill(message: Any, value: Any, field: str, arguments: Arguments) -> None:
    """Fill a message with a JSON object.

    Raises:
        InvalidField: something is unknown, of the wrong type, or out of its range.
    """
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    setters, given = _setters(message.DESCRIPTOR), dict[str, str]()
    for key, item in value.items():
        setter = setters.get(key)
        if setter is None:
            raise InvalidField(
                child(field, str(key)[:60]),
                f"is unknown; there are {', '.join(setters)}",
                reason=Reason.UNKNOWN_PARAMETER,
            )
        if item is None:
            continue
        path = child(field, key)
        oneof, put = setter
        if oneof is not None and (other := given.setdefault(oneof, key)) != key:
            raise InvalidField(path, f"is given with {other}, but only one of them is possible")
        put(message, item, path, arguments)


@functools.cache
def _setters(descriptor: Descriptor) -> Mapping[str, tuple[str | None, Fill]]:
    """By field: the oneof that it belongs to, and the function that sets it."""
    return {field.name: (_oneof(field), _setter(field)) for field in descriptor.fields}


def _oneof(field: FieldDescriptor) -> str | None:
    oneof = field.containing_oneof
    return None if oneof is None or len(oneof.fields) == 1 else oneof.name


def _setter(field: FieldDescriptor) -> Fill:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map_setter(field)
    if field.message_type is not None:
        return _message_setter(field)
    read, name = _reader(field), field.name
    if field.is_repeated:

        def extend(message: Any, value: Any, path: str, arguments: Arguments) -> None:
            items = [read(item, f"{path}[{index}]", arguments) for index, item in enumerate(_listed(value, path))]
            getattr(message, name).extend(items)

        return extend

    def put(message: Any, value: Any, path: str, arguments: Arguments) -> None:
        setattr(message, name, read(value, path, arguments))

    return put


def _message_setter(field: FieldDescriptor) -> Fill:
    name, inner = field.name, _inner(field)
    if field.is_repeated:

        def add(message: Any, value: Any, path: str, arguments: Arguments) -> None:
            repeated = getattr(message, name)
            for index, item in enumerate(_listed(value, path)):
                inner(repeated.add(), item, f"{path}[{index}]", arguments)

        return add

    def put(message: Any, value: Any, path: str, arguments: Arguments) -> None:
        part: Message = getattr(message, name)
        part.SetInParent()
        inner(part, value, path, arguments)

    return put


def _inner(field: FieldDescriptor) -> Fill:
    """The function that fills a field's message."""
    inner: Any = field.message_type
    short = SHORT_FORMS.get(inner.full_name)
    if short is None:
        return fill
    return lambda message, value, path, arguments: short(message, value, path, arguments, fill)


def _map_setter(field: FieldDescriptor) -> Fill:
    entries: Any = field.message_type
    name, values = field.name, entries.fields_by_name["value"]
    if values.message_type is not None:
        inner = _inner(values)

        def put_messages(message: Any, value: Any, path: str, arguments: Arguments) -> None:
            for key, item in _mapped(value, path):
                inner(getattr(message, name)[key], item, entry(path, key), arguments)

        return put_messages
    read = _reader(values)

    def put(message: Any, value: Any, path: str, arguments: Arguments) -> None:
        part = getattr(message, name)
        for key, item in _mapped(value, path):
            part[key] = read(item, entry(path, key), arguments)

    return put


def _listed(value: Any, field: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong_type(field, value, "a list")
    return value


def _mapped(value: Any, field: str) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    return [(read_text(key, field), item) for key, item in value.items()]


def _reader(field: FieldDescriptor) -> Callable[[Any, str, Arguments], Any]:
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        return lambda value, path, arguments: read_integer(value, path, low, high)
    if field.type == F.TYPE_ENUM:
        words = enum_words(field.enum_type)
        return lambda value, path, arguments: read_member(value, path, words)
    return {
        F.TYPE_BOOL: lambda value, path, arguments: read_boolean(value, path),
        F.TYPE_BYTES: read_bytes,
        F.TYPE_DOUBLE: lambda value, path, arguments: read_number(value, path),
        F.TYPE_STRING: lambda value, path, arguments: read_text(value, path),
    }[field.type]


def read_bytes(value: Any, field: str, arguments: Arguments) -> bytes:
    """Bytes: text, `{"base64": ...}`, or `{"binary": NAME}`; halves of surrogate pairs become invalid UTF-8."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogatepass")
        case {"binary": str(name), **rest} if not rest:
            return bytes(arguments.bytes(name, field))
        case {"base64": str() as text, **rest} if not rest:
            array = read_array({"dtype": "u8", "data": text}, "", field, arguments.bytes)
            return bytes(memoryview(array))  # pyright: ignore[reportArgumentType] - u8 is always numpy's
        case _:
            raise wrong_type(field, value, 'text, {"base64": ...} or {"binary": NAME}')


# Parameters that are a request's fields by their own names, as most tools have them.

_TENSOR = types_pb2.Tensor.DESCRIPTOR


def fields_reader(
    request: Callable[[], Any],
    *,
    part: str = "",
    names: Mapping[str, tuple[str, ...]] | None = None,
    single: Collection[str] = (),
    correlated: bool = False,
) -> Callable[[Arguments], Any]:
    """A function that reads parameters into a request.

    Args:
        request: makes an empty one.
        part: the field of the request that the parameters fill, if they do not fill the request itself.
        names: other names for fields.
        single: list fields that also accept a single value.
        correlated: give the call's correlation id to a request without one.
    """

    def read(arguments: Arguments) -> Any:
        message = request()
        target = message
        if part:
            target = getattr(message, part)
            target.SetInParent()
        given = take_fields(arguments, target.DESCRIPTOR.fields, names or {})
        for field in single:
            if isinstance(given.get(field), str | Mapping):
                given[field] = [given[field]]
        fill(target, given, "", arguments)
        if correlated and not target.correlation_id:
            target.correlation_id = _short_enough(arguments.correlation_id or "")
        return message

    return read


def take_fields(arguments: Arguments, fields: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The parameters that are these fields, under the fields' own names; arrays also from descriptions in `tensors`.

    Raises:
        InvalidField: one is given under two names.
    """
    given: dict[str, Any] = {}
    for field in fields:
        asked = (field.name, *names.get(field.name, ()))
        found = [(name, value) for name in asked if (value := arguments.take(name)) is not None]
        if not found and field.message_type is _TENSOR and not field.is_repeated and field.name in arguments.tensors:
            found = [(field.name, field.name)]
        if len(found) > 1:
            raise InvalidField(found[1][0], f"is given with {found[0][0]}, which is the same")
        for name, value in found:
            given[field.name] = value
            if name != field.name:
                arguments.renamed[field.name] = name
    return given


def _short_enough(correlation_id: str) -> str:
    """The call's correlation id; one that is too long for events is left out, and the request is still valid."""
    return correlation_id if len(correlation_id.encode("utf-8", "replace")) <= MAX_ID_BYTES else ""
