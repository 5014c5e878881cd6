"""Counts what a request consists of before protobuf parses it, as what it costs does not show in its size.

An empty sample has 2 bytes in a request, and 100 in memory: 60 MB of them became 2.4 GB, while nothing else ran. A map
is written in the order of its hash table, and filling a table in that order takes quadratic time: 1.3 million entries,
13 MB, held the GIL for 40 s. The work is linear, ends with the first element that is too many, and is pure Python, so
that other threads can run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, content_range, parsed
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MAX_MAP_ENTRIES

__all__ = ["LARGE_BYTES", "MAX_ELEMENTS", "MAX_FIELDS", "memory_of_elements", "request_parsed"]

MAX_FIELDS = 8_000_000
"""Fields of a request, numbers included, at all depths together: each of them takes time to count."""
MAX_ELEMENTS = 2_000_000
"""Messages, texts, entries and members of enumerations in a request, at all depths together.

Other numbers do not count, but for those of shapes: a request may have millions of tokens.
"""
LARGE_BYTES = 64 * 1024
"""Shorter requests have no room for many of them."""

_ELEMENT_BYTES = 100
"""Memory that protobuf needs for an element, besides its content."""
_MAX_DEPTH = 100  # protobuf's own limit
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_NUMBERS = (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT64)
"""Of repeated fields: the 64-bit integers are lengths of dimensions."""

M = TypeVar("M", bound=Message)


def request_parsed(message: type[M], data: bytes) -> M:
    """Parse the bytes of a request.

    Raises:
        InvalidField: see `memory_of_elements`.
    """
    memory_of_elements(message, data)
    return parsed(message, data)


def memory_of_elements(message: type[Message], data: bytes) -> int:
    """Count the elements of a serialised message of this type.

    Returns:
        Bytes that they need in memory besides their content; 0 if the message has less than `LARGE_BYTES`.

    Raises:
        InvalidField: there are more than `MAX_ELEMENTS`, or a map has more than `MAX_MAP_ENTRIES`; or the bytes are no
            message.
    """
    if len(data) < LARGE_BYTES or not _counted(message.DESCRIPTOR):
        return 0
    count = _Count(data)
    try:
        count.walk([(0, len(data))], message.DESCRIPTOR, "", 0)
    except (NeedsFallback, IndexError):
        if count.fields > MAX_FIELDS:
            raise InvalidField("request", f"has more than {MAX_FIELDS:,} fields at all depths together") from None
        raise InvalidField("request", "is not a message of this method", reason=Reason.MALFORMED_MESSAGE) from None
    return count.elements * _ELEMENT_BYTES


class _Count:
    """The elements of one request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.elements = self.fields = 0

    def walk(self, spans: Sequence[FieldRange], descriptor: Any, path: str, depth: int) -> None:
        """Count those of a message, which may consist of several parts that a parser merges."""
        fields = _counted(descriptor)
        if not fields or depth > _MAX_DEPTH:
            return
        data = self._data
        entries: dict[int, int] = {}
        parts: dict[int, list[FieldRange]] = {}
        inner: dict[int, str] = {}
        for at, end in spans:
            while at < end:
                tag, size = data[at], data[at + 1]
                if tag & 0x87 == 2 and tag > 7 and size < 0x80:  # most fields: a tag and a length of one byte each
                    number, content = tag >> 3, (at + 2, at + 2 + size)
                    at = content[1]
                else:
                    number, content, at = content_range(data, at)
                self.fields += 1
                if at > end or self.fields > MAX_FIELDS:
                    # A content beyond its message would be read again with what follows it.
                    raise NeedsFallback
                if content is None or (field := fields.get(number)) is None:
                    continue
                self.elements += content[1] - content[0] if field.packed else 1
                if self.elements > MAX_ELEMENTS:
                    _refuse(path, field, "of all messages, texts and entries", MAX_ELEMENTS)
                if field.packed:
                    continue
                if not field.repeated:
                    parts.setdefault(number, []).append(content)
                    continue
                if field.is_map:
                    entries[number] = entries.get(number, 0) + 1
                    if entries[number] > MAX_MAP_ENTRIES:
                        _refuse(path, field, "entries of a map", MAX_MAP_ENTRIES)
                if field.message is not None and content[0] < content[1]:
                    if number not in inner:
                        inner[number] = f"{path}{field.name}[]."
                    self.walk([content], field.message, inner[number], depth + 1)
        for number, found in parts.items():
            self.walk(found, fields[number].message, f"{path}{fields[number].name}.", depth + 1)


def _refuse(path: str, field: _Field, noun: str, most: int) -> None:
    raise InvalidField(f"{path}{field.name}", f"has more than {most:,} {noun}, the most that a request may have")


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """A field of which the elements are counted."""

    name: str
    repeated: bool
    is_map: bool
    packed: bool
    """Whether its content is numbers, of a byte or more each."""
    message: Any
    """The descriptor of its messages; None for texts, bytes and numbers."""


@functools.cache
def _counted(descriptor: Any) -> Mapping[int, _Field]:
    """By number, the fields of a message that may hold many elements."""
    found: dict[int, _Field] = {}
    for field in descriptor.fields:
        numbers = field.type in _NUMBERS
        if field.message_type is None and not (field.is_repeated and (numbers or field.type in _TEXTS)):
            continue
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        found[field.number] = _Field(field.name, field.is_repeated, is_map, numbers, field.message_type)
    return found
