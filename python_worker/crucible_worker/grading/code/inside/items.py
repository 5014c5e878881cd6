"""The items of an object that a function of the program returned, for tests that iterate over it or index it.

Every item is read once, and the length is their number: such an object can express no more than a list or a dict of
the same items. An object that gave other items at each access could pass tests that no value passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

from crucible_worker.grading.code.inside import frames, values
from crucible_worker.grading.code.inside.errors import ProgramError

__all__ = ["Items"]


class _ItemCaller(values.ObjectTable, Protocol):
    """Queries the program."""

    def fail(self, reason: str) -> NoReturn: ...
    def give_up(self, reason: str) -> NoReturn: ...
    def operate(self, owner: str, number: int, operation: str, *arguments: Any) -> Any: ...


class Items:
    """The items of one object.

    Args:
        caller: queries the program.
        name: the function that returned the object.
        number: of the object.
        gives: those of `iter`, `len`, `getitem` and `keys` that its class has.
    """

    def __init__(self, caller: _ItemCaller, name: str, number: int, gives: Sequence[str]) -> None:
        self._caller, self._name, self._number = caller, name, number
        self._iterates, self._counts, self._indexes, self._maps = (
            each in gives for each in ("iter", "len", "getitem", "keys")
        )
        self._taken: list[Any] = []
        self._source: Iterator[Any] | None = None
        self._end: BaseException | None = None
        """The exception after the last item."""
        self._values: dict[bytes, Any] = {}  # by key
        self._length: int | None = None

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while self._has(at):
            yield self._taken[at]
            at += 1

    def length(self) -> int:
        """The number of items."""
        if self._iterates:
            return sum(1 for _ in self)
        if self._length is None:
            length = self._caller.operate(self._name, self._number, "len")
            if type(length) is not int or length < 0:
                self._caller.fail(f"{self._name} returned an object whose length is not a number of items")
            self._length = length
        return self._length

    def at(self, key: Any) -> Any:
        """The item at an index, or of a key."""
        if self._maps or not self._iterates or not isinstance(key, int | slice):
            return self._by_key(key)
        if isinstance(key, slice):
            return [*self][key]
        if not self._has(key if key >= 0 else self.length() + key):
            raise ProgramError(IndexError(f"what {self._name} returned has no item {key}"))
        return self._taken[key]

    def _by_key(self, key: Any) -> Any:
        try:
            known = frames.written(values.encode(key, 0, self._caller))
        except values.NotPlain as error:
            self._caller.give_up(f"the tests use a key of what {self._name} returned that cannot be passed: {error}")
        if known not in self._values:
            self._values[known] = self._caller.operate(self._name, self._number, "getitem", key)
        return self._values[known]

    def _has(self, at: int) -> bool:
        if at < 0:
            return False
        if self._source is None:
            self._source = self._all()
        while len(self._taken) <= at and self._end is None:
            try:
                self._taken.append(next(self._source))
            except BaseException as error:  # every later access raises it as well
                self._end = error
        if len(self._taken) > at:
            return True
        if not isinstance(self._end, StopIteration) and self._end is not None:
            raise self._end
        return False

    def _all(self) -> Iterator[Any]:
        if self._iterates:
            yield from self._caller.operate(self._name, self._number, "iter")
            return
        at = 0
        while not self._counts or at < self.length():
            try:
                item = self._by_key(at)
            except ProgramError as error:
                if isinstance(error.native, IndexError):
                    return
                raise
            yield item
            at += 1
