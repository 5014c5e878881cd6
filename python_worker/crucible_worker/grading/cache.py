"""A cache for repeated questions, for example by the answers of a group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Cache(Generic[_K, _V]):
    """The most recently used entries, bounded by number and by size.

    Args:
        max_entries: at most so many.
        max_size: of all together, in the unit of the sizes for `put`.
    """

    def __init__(self, *, max_entries: int, max_size: int) -> None:
        self._max_entries, self._max_size = max_entries, max_size
        self._entries: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K) -> _V | None:
        """The entry, which is then marked as used; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Store an entry, and drop the least recently used ones; one that exceeds `max_size` alone is not stored."""
        if size > self._max_size:
            return
        if (before := self._entries.pop(key, None)) is not None:
            self._size -= before[1]
        self._entries[key] = (value, size)
        self._size += size
        while len(self._entries) > self._max_entries or self._size > self._max_size:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._size -= dropped
