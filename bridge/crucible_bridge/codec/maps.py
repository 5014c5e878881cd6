"""Refuses requests with huge maps before protobuf parses them.

A protobuf map is written in the order of its hash table. Filling a table in that order takes quadratic time: 1.3
million entries, 13 MB, hold the GIL for 40 s. So entries are counted first. Only fields that lead to maps are examined,
and only contents that are long enough to matter. The work is linear, and pure Python, so that other threads can run.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, content_range, parsed
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason

__all__ = ["LARGE_BYTES", "MAX_MAP_ENTRIES", "has_maps", "refuse_large_maps", "request_parsed"]

MAX_MAP_ENTRIES = 10_000
"""Limit for one map of a request: labels, metadata of a sample, metrics of trajectories."""
LARGE_BYTES = 64 * 1024
"""Shorter content has no room for many more entries."""

_MAX_DEPTH = 100  # protobuf's own limit

M = TypeVar("M", bound=Message)


def request_parsed(message: type[M], data: bytes) -> M:
    """Parse the bytes of a request.

    Raises:
        InvalidField: they are not a message of this type, or a map has more than `MAX_MAP_ENTRIES`.
    """
    refuse_large_maps(message, data)
    return parsed(message, data)


def has_maps(message: type[Message]) -> bool:
    """Whether messages of a type may contain a map, at any depth."""
    return bool(_leading(message.DESCRIPTOR))


def refuse_large_maps(message: type[Message], data: bytes) -> None:
    """Count the entries of every map of a serialised message of this type.

    Raises:
        InvalidField: a map has more than `MAX_MAP_ENTRIES`; or the bytes are no message.
    """
    if len(data) < LARGE_BYTES or not has_maps(message):
        return
    try:
        _walk(data, [(0, len(data))], message.DESCRIPTOR, "", 0)
    except (NeedsFallback, IndexError):
        raise InvalidField("request", "is not a message of this method", reason=Reason.MALFORMED_MESSAGE) from None


def _walk(data: bytes, spans: Sequence[FieldRange], descriptor: Any, path: str, depth: int) -> None:
    """Check a message, which may consist of several parts that a parser merges."""
    if depth > _MAX_DEPTH or sum(end - at for at, end in spans) < LARGE_BYTES:
        return
    leading = _leading(descriptor)
    entries: Counter[int] = Counter()
    parts: defaultdict[int, list[FieldRange]] = defaultdict(list)
    for at, end in spans:
        while at < end:
            number, content, at = content_range(data, at)
            if content is None or (field := leading.get(number)) is None:
                continue
            if not field.is_repeated:
                parts[number].append(content)
                continue
            if _is_map(field):
                entries[number] += 1
                if entries[number] > MAX_MAP_ENTRIES:
                    message = f"has more than {MAX_MAP_ENTRIES:,} entries, the most that a map of a request may have"
                    raise InvalidField(f"{path}{field.name}", message)
            _walk(data, [content], field.message_type, f"{path}{field.name}[].", depth + 1)
    for number, found in parts.items():
        field = leading[number]
        _walk(data, found, field.message_type, f"{path}{field.name}.", depth + 1)


@functools.cache
def _leading(descriptor: Any) -> Mapping[int, Any]:
    """By number, the fields of a message that are maps, or contain messages with maps."""
    return {
        field.number: field
        for field in descriptor.fields
        if field.message_type is not None and (_is_map(field) or _leads(field.message_type, frozenset()))
    }


def _leads(descriptor: Any, above: frozenset[str]) -> bool:
    if descriptor.full_name in above:
        return False
    above |= {descriptor.full_name}
    return any(
        _is_map(field) or _leads(field.message_type, above)
        for field in descriptor.fields
        if field.message_type is not None
    )


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
