"""Positions of the fields of a serialised message, so that large ones are read in place.

Protobuf copies the bytes of a field into its own memory, and once more for its reader, and holds the GIL all the
while: at 64 MiB that takes more memory and more time than the arithmetic. This module reads only what is large and
plain; for anything else, callers use protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason

__all__ = ["MAX_FIELDS", "FieldRange", "NeedsFallback", "content_range", "parsed", "plainly", "split", "varint"]

FieldRange = tuple[int, int]
"""The begin and the end of a field's content."""

MAX_FIELDS = 4_000_000
"""Of one message that is read in place: a million sequences have three each."""

_VARINT, _DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class NeedsFallback(Exception):
    """The bytes are malformed, or of a form that only protobuf reads."""


def parsed(message: type[M], data: bytes) -> M:
    """Parse bytes.

    Raises:
        InvalidField: they are no message of this type.
    """
    try:
        return message.FromString(data)
    except DecodeError:
        raise InvalidField("request", "is not a message of this method", reason=Reason.MALFORMED_MESSAGE) from None


def plainly(
    message: type[Message],
    data: bytes,
    decode: Callable[[bytes], T],
    *,
    parse: Callable[[type[Message], bytes], Message] = parsed,
) -> T:
    """Decode bytes in place; if they are unusual, once more as protobuf would have written them.

    Args:
        message: their message type.
        data: the bytes.
        decode: reads them in place.
        parse: `parsed`, or `codec.elements.request_parsed` of a request.

    Raises:
        InvalidField: they are no message of this type, or `decode` refuses them.
    """
    try:
        return decode(data)
    except (NeedsFallback, IndexError, DecodeError):
        whole = parse(message, data)
        whole.DiscardUnknownFields()
    try:
        return decode(whole.SerializeToString())
    except (NeedsFallback, IndexError, DecodeError):
        # Nothing that an encoder of this message writes, even where protobuf is lenient enough to read it.
        raise InvalidField("request", "is not a message of this method", reason=Reason.MALFORMED_MESSAGE) from None


def split(data: bytes, span: FieldRange, bulky: Collection[int]) -> tuple[dict[int, list[FieldRange]], bytes]:
    """Separate a message's bulky fields from the rest.

    Args:
        data: the bytes that contain the message.
        span: the position of the message.
        bulky: numbers of fields that hold messages.

    Returns:
        Positions of the contents of each bulky field, in order, and the bytes of all other fields.

    Raises:
        NeedsFallback: the caller must parse the bytes with protobuf. An IndexError means the same.
        InvalidField: there are more than `MAX_FIELDS` fields.
    """
    at, end = span
    count = 0
    spans: dict[int, list[FieldRange]] = {number: [] for number in bulky}
    rest: list[bytes] = []
    while at < end:
        begin, (number, content, at) = at, content_range(data, at)
        count += 1
        if count > MAX_FIELDS:
            raise InvalidField("request", f"has more than {MAX_FIELDS:,} fields in one message")
        if content is not None and (found := spans.get(number)) is not None:
            found.append(content)
        else:
            rest.append(data[begin:at])
    if at != end:
        raise NeedsFallback
    return spans, b"".join(rest)


def content_range(data: bytes, at: int) -> tuple[int, FieldRange | None, int]:
    """A field's number, the position of its content if it has a length, and the field's end.

    Raises:
        NeedsFallback: the caller must parse the bytes with protobuf. An IndexError means the same.
    """
    tag, at = varint(data, at)
    wire = tag & 7
    if tag < 8:
        raise NeedsFallback  # no field has the number 0
    if wire == _DELIMITED:
        size, at = varint(data, at)
        return tag >> 3, (at, at + size), at + size
    if wire == _VARINT:
        return tag >> 3, None, varint(data, at)[1]
    if wire in _FIXED_BYTES:
        return tag >> 3, None, at + _FIXED_BYTES[wire]
    raise NeedsFallback


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and its end.

    Raises:
        NeedsFallback: it does not end. An IndexError means the same.
    """
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for index in range(1, _MAX_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise NeedsFallback
