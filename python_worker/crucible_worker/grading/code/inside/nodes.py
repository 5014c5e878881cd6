"""Linked lists, trees and graphs in LeetCode's form, which pass between a program and its tests.

A node is an instance of a class `ListNode`, `TreeNode` or `Node` that has only LeetCode's attributes: `val` with
`next`, `left`, `right` and the like. Each has a number, the same on both sides during the whole run: a node
that comes back is the one that was sent, with its changes. So a node can be identified by `is`, a list can be
changed in place, and cycles are possible. A message with nodes has a table of all nodes that are reachable from it.

On either side a node is an instance of the class with its name there, or of a bare class if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Nodes", "is_bare", "is_node"]

_CLASSES = frozenset({"ListNode", "TreeNode", "Node"})
_ATTRIBUTES = frozenset({"val", "next", "prev", "random", "child", "left", "right", "parent", "children", "neighbors"})


class Nodes:
    """The nodes that have been sent or received.

    Args:
        named: finds an object of this side by name; its classes, or None.
        first: the number of the first node found on this side: 0 or 1; the other side has the other.
    """

    def __init__(self, named: Callable[[str], Any], first: int) -> None:
        self._named, self._next = named, first
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # by identity; `_objects` keeps them alive
        self._reached: set[int] = set()
        self._waiting: list[int] = []
        self._bare: dict[str, type[Any]] = {}

    def write(self, node: Any) -> int:
        """The number of a node, for the current message."""
        number = self._numbers.get(id(node))
        if number is None:
            number, self._next = self._next, self._next + 2
            self._remember(number, node)
        if number not in self._reached:
            self._reached.add(number)
            self._waiting.append(number)
        return number

    def begin(self) -> tuple[set[int], list[int]]:
        """Begin to write a message; returns the argument for `end`, in case another message was being written."""
        outer = self._reached, self._waiting
        self._reached, self._waiting = set(), []
        return outer

    def end(self, outer: tuple[set[int], list[int]]) -> None:
        """End the current message, written or not."""
        self._reached, self._waiting = outer

    def table(self, encode: Callable[[Any], Any]) -> list[Any]:
        """All nodes that are reachable from the written message."""
        rows: list[Any] = []
        for number in self._waiting:  # it grows meanwhile
            node = self._objects[number]
            attributes = [[name, encode(value)] for name, value in (_attributes(node) or {}).items()]
            rows.append([number, type(node).__name__, attributes])
        return rows

    def read(self, table: Sequence[Any], decode: Callable[[Any], Any]) -> None:
        """Update nodes, and make new ones.

        Raises:
            ValueError: it is not a table of nodes.
        """
        try:
            for number, name, attributes in table:
                if number not in self._objects:
                    self._remember(number, object.__new__(self._class(name)))
                if any(attribute not in _ATTRIBUTES for attribute, _ in attributes):
                    raise ValueError("a node has an unknown attribute")
            for number, _, attributes in table:
                for attribute, written in attributes:
                    setattr(self._objects[number], attribute, decode(written))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a table of nodes: {error}") from None

    def find(self, number: Any) -> Any:
        """A node.

        Raises:
            ValueError: there is no node with this number.
        """
        if type(number) is not int or number not in self._objects:
            raise ValueError("a node that is in no table")
        return self._objects[number]

    def is_met(self, value: Any) -> bool:
        """Whether a value is a node that was sent or received."""
        return id(value) in self._numbers

    def _remember(self, number: Any, node: Any) -> None:
        if type(number) is not int:
            raise ValueError("a node's number is an integer")
        self._objects[number] = node
        self._numbers[id(node)] = number

    def _class(self, name: Any) -> type[Any]:
        if name not in _CLASSES:
            raise ValueError("an unknown class of nodes")
        known = self._named(name)
        return known if isinstance(known, type) else self._bare.setdefault(name, type(name, (), {}))


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of a node; None if the value is not a node."""
    names = list(vars(value)) if hasattr(value, "__dict__") else [name for name in _ATTRIBUTES if hasattr(value, name)]
    if "val" not in names or not _ATTRIBUTES.issuperset(names):
        return None
    return {name: getattr(value, name) for name in sorted(names)}


def is_node(value: Any) -> bool:
    """Whether a value is a node."""
    return type(value).__name__ in _CLASSES and _attributes(value) is not None


def is_bare(value: Any) -> bool:
    """Whether a node's class has no methods except Python's own, like LeetCode's."""
    kind = type(value)
    return not any(callable(getattr(kind, name, None)) for name in dir(kind) if not name.startswith("_"))
