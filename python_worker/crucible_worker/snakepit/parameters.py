"""A tool's parameters -> the request of its call, by the message's descriptor.

JSON with the protos' names, in snake_case, with words for enums ("completed"), text for bytes, lists of numbers for
tensors; and the short forms of `tools_short_forms`. Null counts as absent. An unknown parameter or a wrong type is
refused, with its path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge.codec.fields import child, entry
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.snakepit.arguments import Arguments, Fill
from crucible_worker.snakepit.tools_arrays import read_array
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
    "fill",
    "read_bytes",
]

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
