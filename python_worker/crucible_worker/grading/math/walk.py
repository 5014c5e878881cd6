"""Traversal of trees: parts, names, replacing. Nothing here compares."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    Text,
)

__all__ = [
    "BINDING",
    "arithmetic",
    "children",
    "free_symbols",
    "nodes_of",
    "ordered_symbols",
    "rebuilt",
    "replaced",
    "walk",
]

BINDING = frozenset({"sum", "product", "integral", "limit", "derivative"})
"""Calls with a bound variable as the first argument."""

# By type, as every walk over a tree comes here for each of its nodes.
_PARTS: Mapping[type, Callable[[Any], tuple[Node, ...]]] = {
    Sum: operator.attrgetter("terms"),
    Product: operator.attrgetter("factors"),
    Power: operator.attrgetter("base", "exponent"),
    FunctionCall: operator.attrgetter("arguments"),
    Quantity: lambda node: (node.value,),
    PlusMinus: operator.attrgetter("left", "right"),
    Collection: operator.attrgetter("items"),
    Interval: operator.attrgetter("low", "high"),
    SetOperation: operator.attrgetter("operands"),
    Relation: operator.attrgetter("operands"),
    Matrix: lambda node: tuple(itertools.chain.from_iterable(node.rows)),
}
_ARITHMETIC = (Number, Constant, Symbol, Sum, Product, Power, FunctionCall, Based)
_LEAVES = (Number, Constant, Symbol, Based, Text)


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, in order."""
    parts = _PARTS.get(type(node))
    return () if parts is None else parts(node)


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each part changed; the node itself if nothing changed."""
    parts = children(node)
    changed = tuple(map(change, parts))
    if all(map(operator.is_, changed, parts)):
        return node
    match node:
        case Sum():
            return Sum(changed)
        case Product():
            return Product(changed)
        case Power():
            return Power(*changed)
        case FunctionCall(function):
            return FunctionCall(function, changed)
        case Quantity(_, unit):
            return Quantity(changed[0], unit)
        case PlusMinus():
            return PlusMinus(*changed)
        case Collection(kind):
            return Collection(kind, changed)
        case Interval(_, _, low_closed, high_closed):
            low, high = changed
            return Interval(low, high, low_closed, high_closed)
        case SetOperation(how):
            return SetOperation(how, changed)
        case Relation(_, operators):
            return Relation(changed, operators)
        case Matrix(rows):
            width = len(rows[0])
            return Matrix(tuple(changed[start : start + width] for start in range(0, len(changed), width)))
        case _:
            return node


def walk(node: Node) -> list[Node]:
    """The node and everything in it, from left to right."""
    found: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        found.append(current)
        parts = _PARTS.get(type(current))
        if parts is not None:
            stack.extend(parts(current)[::-1])
    return found


def nodes_of(node: Node) -> list[Node]:
    """The node and everything in it, level by level: faster than `walk`, if the order does not matter."""
    found = [node]
    for current in found:  # it grows meanwhile
        parts = _PARTS.get(type(current))
        if parts is not None:
            found.extend(parts(current))
    return found


def arithmetic(node: Node) -> bool:
    """Whether this is a number or a formula: only arithmetic, degrees and percents."""
    return all(
        isinstance(part, _ARITHMETIC) or (isinstance(part, Quantity) and part.unit in ("degree", "percent"))
        for part in nodes_of(node)
    )


def ordered_symbols(node: Node) -> tuple[str, ...]:
    """Names of the variables in the order in which they first occur, without those that a sum or an integral binds."""
    parts = walk(node)
    names = dict.fromkeys(part.name for part in parts if isinstance(part, Symbol))
    if not names:
        return ()
    bound = _bound(parts)
    return tuple(name for name in names if name not in bound)


def free_symbols(node: Node) -> frozenset[str]:
    """Names of the variables, those that a sum or an integral binds left out."""
    parts = nodes_of(node)
    names = frozenset([part.name for part in parts if isinstance(part, Symbol)])
    return names - _bound(parts) if names else names


def _bound(parts: Sequence[Node]) -> set[str]:
    """Names of the variables that a sum or an integral among these binds."""
    return {
        part.arguments[0].name
        for part in parts
        if isinstance(part, FunctionCall)
        and part.function in BINDING
        and part.arguments
        and isinstance(part.arguments[0], Symbol)
    }


def replaced(node: Node, values: Mapping[str, Node]) -> Node:
    """The node with variables replaced."""
    if isinstance(node, Symbol):
        return values.get(node.name, node)
    if isinstance(node, _LEAVES):
        return node
    return rebuilt(node, lambda part: replaced(part, values))
