"""A tool's parameters -> the request of its call, by the message's descriptor.

JSON with the protos' names, in snake_case, with words for enums ("completed"), text for bytes, lists of numbers for
tensors; and the short forms of `tools_short_forms`. Null counts as absent. An unknown parameter or a wrong type is
refused, with its path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge.codec.fields import child, entry
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Array
from crucible_worker.snakepit.tools_arrays import Binary, read_array
from crucible_worker.snakepit.tools_short_forms import SHORT_FORMS
from crucible_worker.snakepit.tools_values import (
    enum_words,
    read_boolean,
    read_integer,
    read_member,
    read_number,
    read_text,
    wrong_type,
)

__all__ = [
    "MSGPACK",
    "RESULT_FORMAT",
    "RESULT_FORMATS",
    "TENSORS",
    "Arguments",
    "fill",
    "read_bytes",
]

TENSORS, RESULT_FORMAT, MSGPACK = "tensors", "result_format", "msgpack"
"""Parameters that every tool has: descriptions of binary parameters; the form of the answer; and the binary parameter
that holds further parameters."""

RESULT_FORMATS = ("json", "binary", "msgpack")
"""All in JSON; tensors as separate bytes; or everything as msgpack."""

Fill = Callable[[Any, Any, str, "Arguments"], None]
"""Fills a message with a JSON value at a path; the parameters have the arrays."""

F = FieldDescriptor
_INTEGERS: Mapping[int, tuple[int, int]] = {
    F.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_UINT32: (0, (1 << 32) - 1),
    F.TYPE_UINT64: (0, (1 << 64) - 1),
}


class Arguments:
    """The parameters of a tool call, and which of them have been read."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        binary: Mapping[str, Binary],
        *,
        correlation_id: str | None = None,
        max_sequences: int | None = None,
    ) -> None:
        """Take JSON values and bytes by name.

        Raises:
            InvalidField: the parameters that every tool has are wrong.
        """
        self._binary = binary
        self._read_binary: set[str] = set()
        self.values = _given(parameters)
        """The parameters that are still unread; a reader removes what it reads."""
        if MSGPACK in binary:
            self.values |= _unpacked(self, self.values)
        self.correlation_id = correlation_id
        """Correlation id of the call."""
        self.max_sequences = max_sequences
        """Limit of sequences in a call for metrics over tokens; None without a limit."""
        self.result_format = self._format(self.values.pop(RESULT_FORMAT, None))
        """One of RESULT_FORMATS."""
        tensors = self.values.pop(TENSORS, None)
        if tensors is not None and not isinstance(tensors, Mapping):
            raise wrong_type(TENSORS, tensors, "an object")
        self.tensors = _given(tensors or {})
        """Descriptions of arrays that are still to be read."""
        self._shared: dict[str, Array] = {}
        self.renamed: dict[str, str] = {}
        """Fields of the message by the caller's names for them, if these differ."""
        self.noted: dict[str, Any] = {}
        """Facts about the parameters that writing the answer needs."""

    def take(self, *names: str) -> Any:
        """The first of these parameters that is given; None if none is."""
        return next((self.values.pop(name) for name in names if name in self.values), None)

    def array(self, value: Any, name: str, field: str) -> Array:
        """The array of a value: numbers, a description, or the name of one in `tensors`."""
        if not isinstance(value, str):
            return read_array(value, name, field, self.bytes)
        if value not in self._shared:
            description = self.tensors.pop(value, None)
            if description is None:
                raise InvalidField(field, f"is {value[:60]!r}, which {TENSORS} does not describe")
            self._shared[value] = read_array(description, value, entry(TENSORS, value), self.bytes)
        return self._shared[value]

    def bytes(self, name: str, field: str) -> Binary:
        """A binary parameter.

        Raises:
            InvalidField: it does not exist.
        """
        data = self._binary.get(name)
        if data is None:
            raise InvalidField(field, f"needs the binary parameter {name[:60]!r}, which does not exist")
        self._read_binary.add(name)
        return data

    def named(self, error: BridgeError) -> BridgeError:
        """The error, with the caller's name for its field."""
        for ours, theirs in self.renamed.items():
            if error.field.startswith(ours):
                error.field = theirs + error.field[len(ours) :]
                break
        return error

    def refuse_unknown(self) -> None:
        """Refuse parameters that were not read.

        Raises:
            InvalidField: there is such a parameter.
        """
        for name in self.values:
            raise InvalidField(name[:60], "is not a parameter of this tool", reason=Reason.UNKNOWN_PARAMETER)
        for name in self.tensors:
            raise InvalidField(
                entry(TENSORS, str(name)[:60]), "is not used by this tool", reason=Reason.UNKNOWN_PARAMETER
            )
        for name in self._binary.keys() - self._read_binary:
            message = f"is a binary parameter that nothing refers to: describe it in {TENSORS}, or by a parameter"
            raise InvalidField(name[:60], message, reason=Reason.UNKNOWN_PARAMETER)

    def _format(self, value: Any) -> str:
        if value is None:
            return RESULT_FORMATS[0]
        if value not in RESULT_FORMATS:
            raise InvalidField(RESULT_FORMAT, f"is {str(value)[:60]!r}, not one of {', '.join(RESULT_FORMATS)}")
        return value


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values: null counts as absent."""
    return {name: value for name, value in values.items() if value is not None}


def _unpacked(arguments: Arguments, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        unpacked = msgpack.unpackb(arguments.bytes(MSGPACK, MSGPACK))
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise InvalidField(MSGPACK, "is not msgpack, or has keys that are not text") from error
    if not isinstance(unpacked, dict) or not all(isinstance(key, str) for key in unpacked):
        raise wrong_type(MSGPACK, unpacked, "a map with names as keys")
    said = _given(unpacked)
    for name in said.keys() & parameters.keys():
        raise InvalidField(name[:60], f"is both in JSON and in {MSGPACK}")
    return said


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
