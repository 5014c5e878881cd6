"""Messages between this package's processes: maps in msgpack, within frames; errors included.

Text that is not valid Unicode does not fit into msgpack's text, so it is sent as an extension type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from crucible_bridge import errors
from crucible_bridge.errors import BackendError, BridgeError
from crucible_worker.children.frames import MAX_FRAME_BYTES, frame
from crucible_worker.util.parsing import uncollected

__all__ = [
    "MAX_CONTAINERS",
    "MAX_VALUES",
    "check_containers",
    "decoded",
    "encoded",
    "error_from_map",
    "error_to_map",
    "may_hold_many",
    "pack",
    "pack_text",
    "unpack",
    "unpack_foreign",
]

MAX_CONTAINERS = 1 << 22
"""Lists and maps in a message of a process that runs foreign code. One byte of the message can become sixty bytes of
memory."""
MAX_VALUES = 1 << 24
"""Values in such a message."""

T = TypeVar("T")

_ANY_TEXT = 1  # the extension type of text with lone surrogates
_CONTAINERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))

_CLASSES: Mapping[str, type[BridgeError]] = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, BridgeError)
}


def pack(message: Mapping[str, Any], max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """A frame.

    Raises:
        UnicodeEncodeError: a text is no valid Unicode.
        TooLong: the message exceeds `max_bytes`.
    """
    return frame(msgspec.msgpack.encode(message, enc_hook=_plain), max_bytes)


def pack_text(message: Mapping[str, Any], max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """A frame; its texts may hold what is no valid Unicode.

    Raises:
        TooLong: the message exceeds `max_bytes`.
    """
    try:
        return pack(message, max_bytes)
    except UnicodeEncodeError:
        return pack(_sendable(message), max_bytes)


def encoded(value: Any) -> bytes:
    """A value of any types that msgspec knows, such as dataclasses; its texts may hold what is no valid Unicode."""
    try:
        return msgspec.msgpack.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, memoryview))
        return msgspec.msgpack.encode(_sendable(plain), enc_hook=_plain)


def decoded(body: bytes | msgspec.Raw, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """The value that `encoded` was given, as its type.

    Raises:
        ValueError: it is of another type.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:  # it may hold a text that is no valid Unicode
        return msgspec.convert(msgspec.msgpack.decode(body, ext_hook=_extension), decoder.type)


def unpack(body: bytes) -> dict[str, Any]:
    """The message of a frame's body.

    Raises:
        ValueError: it is no map in msgpack.
    """
    try:
        with uncollected(len(body)):
            message = msgspec.msgpack.decode(body, ext_hook=_extension)
    except (msgspec.DecodeError, RecursionError, TypeError) as error:
        raise ValueError(f"no message: {error}") from error
    if not isinstance(message, dict):
        raise ValueError(f"a message that is a {type(message).__name__}")
    return message


async def unpack_foreign(body: bytes) -> dict[str, Any]:
    """The message of a process that runs foreign code; never more than `MAX_CONTAINERS` and `MAX_VALUES`.

    Raises:
        ValueError: it is no map in msgpack, or holds more.
    """
    if may_hold_many(body):
        import asyncio  # 25 ms that a child process without an event loop need not spend

        await asyncio.to_thread(check_containers, body)
    return unpack(body)


def may_hold_many(body: bytes) -> bool:
    """Whether a body could hold more than `MAX_CONTAINERS`; texts and arrays count as if each byte were one."""
    return len(body) - len(body.translate(None, _CONTAINERS)) > MAX_CONTAINERS


def check_containers(body: bytes) -> None:
    """Count the lists and maps of a body without making them; for a thread, as it takes seconds for the largest.

    Raises:
        ValueError: there are more than `MAX_CONTAINERS`, or the body is no msgpack.
    """
    place = containers = values = 0
    while place < len(body):
        kind = body[place]
        values += 1
        place += 1
        if 0x80 <= kind < 0xA0:
            containers += 1
        elif 0xA0 <= kind < 0xC0:
            place += kind - 0xA0
        elif 0xC0 <= kind < 0xE0:
            size, length = _SIZES[kind - 0xC0]
            if kind >= 0xDC:
                containers += 1
            elif length:
                size += int.from_bytes(body[place : place + length], "big")
            place += size
        if containers > MAX_CONTAINERS or values > MAX_VALUES:
            raise ValueError(f"a message of more than {MAX_CONTAINERS:,} lists and maps, or {MAX_VALUES:,} values")


# For the kinds from 0xC0: bytes after the kind, and how many of these are the length of what follows.
_SIZES: tuple[tuple[int, int], ...] = (
    *((0, 0),) * 4,  # nil, unused, booleans
    *((1, 1), (2, 2), (4, 4)),  # bytes
    *((2, 1), (3, 2), (5, 4)),  # extension types: their code, too
    *((4, 0), (8, 0)),  # floats
    *((1, 0), (2, 0), (4, 0), (8, 0)) * 2,  # integers
    *((2, 0), (3, 0), (5, 0), (9, 0), (17, 0)),  # extension types of fixed lengths
    *((1, 1), (2, 2), (4, 4)),  # text
    *((2, 0), (4, 0)) * 2,  # lists and maps
)


def error_to_map(error: BridgeError) -> dict[str, Any]:
    """An error, ready to be packed."""
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "reason": error.reason,
        "retryable": error.retryable,
    }


def error_from_map(fields: Mapping[str, Any]) -> BridgeError:
    """The error that `error_to_map` was given."""
    kind = _CLASSES.get(fields["kind"], BackendError)
    error = kind.__new__(kind)
    # Bypasses the subclasses' constructors, which take their arguments in different orders.
    BridgeError.__init__(
        error, fields["message"], field=fields["field"], reason=fields["reason"], retryable=fields["retryable"]
    )
    return error


class _AnyText:
    """Text that is no valid Unicode, also as a key: the library's extension types cannot be keys of a dict."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def _plain(value: object) -> object:
    """A value of a class below a plain one, such as numpy's float64, as the plain one."""
    if isinstance(value, _AnyText):
        return msgspec.msgpack.Ext(_ANY_TEXT, value.data)
    kinds: tuple[Any, ...] = (str, float, int, bytes, dict, list, tuple)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return _AnyText(value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, Mapping):
        return {_sendable(key): _sendable(inner) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        return [_sendable(inner) for inner in value]
    return value


def _extension(code: int, data: memoryview) -> str:
    if code != _ANY_TEXT:
        raise ValueError(f"an extension type {code}")
    return bytes(data).decode("utf-8", "surrogatepass")
