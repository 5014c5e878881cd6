"""What of an answer has room in a message: an item without room is sent as a problem, and costs no other item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_bridge.v1 import types_pb2

__all__ = ["RESERVED_ITEM_BYTES", "kept_within", "within_room"]

RESERVED_ITEM_BYTES = 256
"""Room that is reserved for every item of a reply: enough for its problem."""


def within_room(message: Any, max_bytes: int) -> Any:
    """A message of at most so many bytes; those of its `items` without room left are replaced by their problem."""
    if message.ByteSize() > max_bytes and message.items:
        kept = kept_within(max_bytes, type(message.items[0]), list(message.items), len(message.items))
        del message.items[:]
        message.items.extend(kept)
    return message


def kept_within(max_bytes: int, item: Callable[..., Any], messages: Iterable[Any], count: int) -> list[Any]:
    """The messages; those without room left are replaced by their problem."""
    kept: list[Any] = []
    # One share more than items: for the rest of the message.
    room = max_bytes - RESERVED_ITEM_BYTES * (count + 1)
    for message in messages:
        size = message.ByteSize()
        if size <= max(room, RESERVED_ITEM_BYTES // 2):
            room -= size
            kept.append(message)
        else:
            kept.append(item(problem=_too_large(size, max_bytes)))
    return kept


def _too_large(size: int, max_bytes: int) -> types_pb2.Problem:
    message = f"an answer of {size:,} bytes has no room left in a message of {max_bytes:,}: send smaller batches"
    return types_pb2.Problem(reason=Reason.ANSWER_TOO_LARGE, message=message)
