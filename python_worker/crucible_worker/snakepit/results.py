"""Replies of calls -> plain values: JSON of the messages' fields, and tensors as lists, bytes or msgpack.

Every field is included, except absent ones. Enums are words ("completed"), a model is text, metrics are numbers next to
`undefined`, and numbers that JSON lacks are text ("NaN").
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from crucible_bridge.arrays import floats, from_tensor, to_tensor
from crucible_bridge.codec.events import is_unknown
from crucible_bridge.codec.generated import model_ref_from_v1
from crucible_bridge.codec.options import options_from_v1
from crucible_bridge.codec.tensors import tensor_from_v1
from crucible_bridge.events import TELEMETRY_NAMES, EventKind
from crucible_bridge.types import Array, format_model
from crucible_bridge.v1 import evaluation_pb2, events_pb2, types_pb2
from crucible_worker.snakepit.arguments import enum_words

__all__ = ["Output", "ToolResult", "number_to_json", "to_json"]

_METRICS = types_pb2.Metrics.DESCRIPTOR.full_name
F = FieldDescriptor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool."""

    value: dict[str, Any]
    """Plain JSON: no NaN, no bytes."""
    binary: bytes | None = None
    """The requested bytes: tensors one after the other, or msgpack."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """A description of the bytes: "result_format"; for a single tensor also "dtype" and "shape"."""

    text: bytes | None = None
    """The value as JSON, if it is large: a thread has written it."""

    def json(self) -> bytes:
        """The value as JSON in ASCII."""
        return json.dumps(self.value, allow_nan=False).encode("ascii") if self.text is None else self.text


class Output:
    """Writes a result, and collects its tensors."""

    def __init__(self, result_format: str) -> None:
        """Write in one of RESULT_FORMATS."""
        self._format = result_format
        self._pieces: list[Any] = []
        self._described: list[dict[str, Any]] = []
        self._size = 0

    @property
    def plain(self) -> bool:
        """Whether tensors are written as lists of numbers."""
        return self._format == "json"

    def tensor(self, array: Array) -> Any:
        """The JSON value of a tensor."""
        if self.plain:
            return _numbers(array)
        tensor = to_tensor(array)
        described: dict[str, Any] = {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        if self._format == "msgpack":
            return {**described, "data": bytes(tensor.data)}
        size = memoryview(tensor.data).nbytes
        described |= {"offset": self._size, "bytes": size}
        self._pieces.append(tensor.data)
        self._described.append(described)
        self._size += size
        return described

    def result(self, value: dict[str, Any]) -> ToolResult:
        """The result, once its value is written."""
        if self._format == "msgpack":
            what = {"result_format": "msgpack"}
            return ToolResult(value=dict(what), binary=msgpack.packb(value), metadata=what)
        if not self._described:
            return ToolResult(value=value)
        metadata = {"result_format": "binary"}
        if len(self._described) == 1:
            (only,) = self._described
            metadata |= {"dtype": only["dtype"], "shape": json.dumps(only["shape"])}
        return ToolResult(value=value, binary=b"".join(self._pieces), metadata=metadata)


def to_json(message: Any, output: Output) -> dict[str, Any]:
    """A message as a plain dictionary, by the names of the protos."""
    value: dict[str, Any] = {}
    for write in _writers(message.DESCRIPTOR):
        write(message, value, output)
    return value


def number_to_json(number: float) -> float | str:
    """A number, or the name of one that JSON lacks."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _numbers(array: Array) -> Any:
    """Numbers in nested lists, one level per dimension."""
    values = array if isinstance(array, np.ndarray) else floats(array, "tensor")
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values.tolist()
    return _spelled(values.tolist())


def _spelled(value: Any) -> Any:
    return [_spelled(each) for each in value] if isinstance(value, list) else number_to_json(value)


Write = Callable[[Any, dict[str, Any], Output], None]
"""Writes a field of a message into a dictionary."""


@functools.cache
def _writers(descriptor: Descriptor) -> tuple[Write, ...]:
    writers = [_writer(field) for field in descriptor.fields]
    if descriptor is events_pb2.Event.DESCRIPTOR:
        writers.append(_telemetry_name)
    return tuple(writers)


def _writer(field: FieldDescriptor) -> Write:
    name, inner = field.name, field.message_type
    if inner is not None and inner.full_name == _METRICS:
        return functools.partial(_write_metrics, name)
    if inner is not None and inner.GetOptions().map_entry:
        convert = _converter(inner.fields_by_name["value"])
        return lambda message, value, output: value.__setitem__(
            name, {key: convert(item, output) for key, item in _sorted(getattr(message, name)).items()}
        )
    if field.full_name == _SCHEMA:
        return lambda message, value, output: value.__setitem__(name, json.loads(getattr(message, name)))
    convert = _converter(field)
    if inner is events_pb2.Event.DESCRIPTOR:
        # A newer worker of the same journal may write kinds that have no name here.
        return lambda message, value, output: value.__setitem__(
            name, [convert(event, output) for event in getattr(message, name) if not is_unknown(event)]
        )
    if field.is_repeated:
        return lambda message, value, output: value.__setitem__(
            name, [convert(item, output) for item in getattr(message, name)]
        )
    if field.has_presence:
        return functools.partial(_write_present, name, convert)
    return lambda message, value, output: value.__setitem__(name, convert(getattr(message, name), output))


_SCHEMA = evaluation_pb2.EvaluatorInfo.DESCRIPTOR.fields_by_name["options_schema"].full_name


def _write_metrics(name: str, message: Any, value: dict[str, Any], output: Output) -> None:
    """Numbers by key, and the reasons for missing ones."""
    metrics = getattr(message, name)
    value[name] = _sorted(metrics.values)
    value["undefined"] = _sorted(metrics.undefined)


def _sorted(entries: Mapping[str, Any]) -> dict[str, Any]:
    """A message's map, by its keys; only keys are iterated, as iterating items is slow."""
    return {key: entries[key] for key in sorted(entries)}


def _write_present(
    name: str, convert: Callable[[Any, Output], Any], message: Any, value: dict[str, Any], output: Output
) -> None:
    if message.HasField(name):
        value[name] = convert(getattr(message, name), output)


def _telemetry_name(message: Any, value: dict[str, Any], output: Output) -> None:
    """An event's `:telemetry` name, by which consumers know its kind."""
    value["name"] = list(_NAMES[message.kind])


_NAMES = {events_pb2.EventKind.Value(f"EVENT_KIND_{kind}"): TELEMETRY_NAMES[kind] for kind in EventKind}


def _converter(field: FieldDescriptor) -> Callable[[Any, Output], Any]:
    if field.message_type is not None:
        return _SHORT.get(field.message_type.full_name, to_json)
    if field.type == F.TYPE_ENUM:
        words = {number: word for word, number in enum_words(field.enum_type).items()}
        return lambda value, output: words.get(value, "unspecified")
    if field.type == F.TYPE_DOUBLE:
        return lambda value, output: number_to_json(value)
    if field.type == F.TYPE_BYTES:
        return lambda value, output: {"base64": base64.b64encode(value).decode("ascii")}
    return lambda value, output: value


_SHORT: Mapping[str, Callable[[Any, Output], Any]] = {
    types_pb2.ModelRef.DESCRIPTOR.full_name: lambda message, output: format_model(model_ref_from_v1(message, "model")),
    types_pb2.Tensor.DESCRIPTOR.full_name: lambda message, output: output.tensor(
        from_tensor(tensor_from_v1(message, "tensor"), "tensor")
    ),
    "google.protobuf.Struct": lambda message, output: options_from_v1(message, "options"),
}
"""By the full name of a message, the function that writes it."""
