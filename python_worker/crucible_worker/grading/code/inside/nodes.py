"""Linked lists, trees and graphs in LeetCode's form, as they cross between a program and its tests.

A node is an instance of a class `ListNode`, `TreeNode` or `Node` that has LeetCode's attributes alone: `val` with
`next`, `left`, `right` and the like. Each has a number, the same on both sides for as long as the run takes: a node
that comes back is the one that was sent, with what has changed in it. So a node may be found by `is`, a list may be
changed in place, and cycles are no obstacle. A message with nodes has a table of all that can be reached from it.

On either side a node is an instance of the class that has its name there, or of a bare one where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Nodes", "is_bare", "is_node"]

_CLASSES = frozenset({"ListNode", "TreeNode", "Node"})
_ATTRIBUTES = frozenset({"val", "next", "prev", "random", "child", "left", "right", "parent", "children", "neighbors"})


class Nodes:
    """The nodes that have crossed.

    Args:
        named: what has a name on this side; its classes, or None.
        first: the number of the first node that is met here; 0 or 1, the other for the other side.
    """

    def __init__(self, named: Callable[[str], Any], first: int) -> None:
        self._named, self._next = named, first
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # by identity; `_objects` keeps them alive
        self._reached: set[int] = set()
        self._waiting: list[int] = []
        self._bare: dict[str, type[Any]] = {}

    def write(self, node: Any) -> int:
        """The number of a node, for the message that is being written."""
        number = self._numbers.get(id(node))
        if number is None:
            number, self._next = self._next, self._next + 2
            self._remember(number, node)
        if number not in self._reached:
            self._reached.add(number)
            self._waiting.append(number)
        return number

    def begin(self) -> tuple[set[int], list[int]]:
        """A message is written from here on; what `end` wants where another one was being written."""
        outer = self._reached, self._waiting
        self._reached, self._waiting = set(), []
        return outer

    def end(self, outer: tuple[set[int], list[int]]) -> None:
        """The message is written, or is not to be."""
        self._reached, self._waiting = outer

    def table(self, encode: Callable[[Any], Any]) -> list[Any]:
        """All nodes that can be reached from the message that was written."""
        rows: list[Any] = []
        for number in self._waiting:  # which grows meanwhile
            node = self._objects[number]
            attributes = [[name, encode(value)] for name, value in (_attributes(node) or {}).items()]
            rows.append([number, type(node).__name__, attributes])
        return rows

    def read(self, table: Sequence[Any], decode: Callable[[Any], Any]) -> None:
        """Bring nodes up to date, and make those that are new.

        Raises:
            ValueError: this is no table.
        """
        try:
            for number, name, attributes in table:
                if number not in self._objects:
                    self._remember(number, object.__new__(self._class(name)))
                if any(attribute not in _ATTRIBUTES for attribute, _ in attributes):
                    raise ValueError("a node has an attribute that none has")
            for number, _, attributes in table:
                for attribute, written in attributes:
                    setattr(self._objects[number], attribute, decode(written))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no table of nodes: {error}") from None

    def find(self, number: Any) -> Any:
        """A node.

        Raises:
            ValueError: there is none with this number.
        """
        if type(number) is not int or number not in self._objects:
            raise ValueError("a node that no table has")
        return self._objects[number]

    def is_met(self, value: Any) -> bool:
        """Whether a value is a node that has crossed."""
        return id(value) in self._numbers

    def _remember(self, number: Any, node: Any) -> None:
        if type(number) is not int:
            raise ValueError("a node's number is an integer")
        self._objects[number] = node
        self._numbers[id(node)] = number

    def _class(self, name: Any) -> type[Any]:
        if name not in _CLASSES:
            raise ValueError("a class that no node has")
        known = self._named(name)
        return known if isinstance(known, type) else self._bare.setdefault(name, type(name, (), {}))


def _attributes(value: Any) -> dict[str, Any] | None:
    """What a node holds; None where the value is none."""
    names = list(vars(value)) if hasattr(value, "__dict__") else [name for name in _ATTRIBUTES if hasattr(value, name)]
    if "val" not in names or not _ATTRIBUTES.issuperset(names):
        return None
    return {name: getattr(value, name) for name in sorted(names)}


def is_node(value: Any) -> bool:
    """Whether a value is a node."""
    return type(value).__name__ in _CLASSES and _attributes(value) is not None


def is_bare(value: Any) -> bool:
    """Whether a node's class has no methods but Python's own, as LeetCode's has."""
    kind = type(value)
    return not any(callable(getattr(kind, name, None)) for name in dir(kind) if not name.startswith("_"))
