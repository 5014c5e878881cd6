"""Sets of real numbers by their elements: intervals, points, and the results of relations, unions and differences.

Two sets are equal if each bound, and each gap between neighbouring bounds, is in both or in neither.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.equations import difference
from crucible_worker.grading.math.polynomials import Quadratic, quadratic, roots
from crucible_worker.grading.math.tidy import ZERO, negated
from crucible_worker.grading.math.tree import (
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Node,
    Number,
    Power,
    Product,
    Relation,
    SetOperation,
    Sum,
    Symbol,
)
from crucible_worker.grading.math.walk import arithmetic, free_symbols, replaced

__all__ = ["Combined", "RealSet", "Stretch", "contains", "is_no_union", "real_set", "stretches_of", "variables_of"]

INFINITY = Constant("infinity")
_REALS = "\u211d"
_COMPLEX = frozenset("zw")  # letters of complex numbers: |z| = 1 is a circle


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """From a bound to a bound; a point if both are the same closed bound."""

    low: Node
    """Lower bound, or minus infinity."""
    high: Node
    """Upper bound, or infinity."""
    low_closed: bool
    """Whether the lower bound is in it."""
    high_closed: bool
    """Whether the upper bound is in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Combined:
    """A combination of sets."""

    operator: str
    """`union`, `intersection`, `difference`; `list`, parts separated by commas, which are a union if no two overlap."""
    parts: tuple[RealSet, ...]
    """May be empty for a union: the empty set."""


RealSet: TypeAlias = Stretch | Combined
"""A set of real numbers."""

ALL = Stretch(negated(INFINITY), INFINITY, False, False)
_PARTS_OF_REALS: Mapping[str, RealSet] = {
    _REALS: ALL,
    f"{_REALS}+": Stretch(ZERO, INFINITY, False, False),
    f"{_REALS}-": Stretch(negated(INFINITY), ZERO, False, False),
    f"{_REALS}*": Combined("difference", (ALL, Stretch(ZERO, ZERO, True, True))),
}


def variables_of(node: Node) -> frozenset[str]:
    """The variables that a relation or a union of relations is about: x of a < x < b."""
    match node:
        case Relation(operands, ("in",)):
            return free_symbols(operands[0])
        case Relation((low, Symbol(name), high)) if name not in free_symbols(low) | free_symbols(high):
            return frozenset({name})
        case Relation(operands):
            return frozenset().union(*map(free_symbols, operands))
        case SetOperation(_, operands):
            return frozenset().union(*map(variables_of, operands))
        case Collection(_, items) if all(isinstance(item, Relation | SetOperation) for item in items):
            return frozenset().union(*map(variables_of, items))
        case _:
            return frozenset()


def real_set(node: Node, *, pairs: bool) -> RealSet | None:
    """The set of a node; None if it is not a set of real numbers. `pairs`: (a, b) is an open interval."""
    match node:
        case Interval(low, high, low_closed, high_closed):
            return Stretch(low, high, low_closed, high_closed)
        case Collection("tuple", (low, high)) if pairs:
            return Stretch(low, high, False, False)
        case Collection("bracket", (low, high)) if pairs:
            return Stretch(low, high, True, True)
        case Collection("set", items):
            return _combined("union", items, pairs)
        case Collection("list", items):
            return _combined("list", items, pairs)
        case SetOperation(operator, operands):
            return _combined(operator, operands, pairs)
        case Relation():
            return _related(node, pairs)
        case Symbol(name):
            return _PARTS_OF_REALS.get(name)
        case _:
            return Stretch(node, node, True, True) if arithmetic(node) else None


def _combined(operator: str, operands: tuple[Node, ...], pairs: bool) -> RealSet | None:
    parts: list[RealSet] = []
    for operand in operands:
        part = real_set(operand, pairs=pairs)
        if part is None:
            return None
        parts.append(part)
    return Combined(operator, tuple(parts))


def _related(relation: Relation, pairs: bool) -> RealSet | None:
    """The values of the one variable of a relation: of each link of a chain, and then of all of them."""
    operands, operators = relation.operands, relation.operators
    if operators == ("in",):
        return real_set(operands[1], pairs=pairs) if isinstance(operands[0], Symbol) else None
    match relation:
        case Relation((low, Symbol(), high), ("<" | "<=" as above, "<" | "<=" as below)):
            return Stretch(low, high, above == "<=", below == "<=")
        case Relation((high, Symbol(), low), (">" | ">=" as below, ">" | ">=" as above)):
            return Stretch(low, high, above == ">=", below == ">=")
    names = variables_of(relation)
    if len(names) != 1:
        return None
    links: list[RealSet] = []
    for left, operator, right in zip(operands, operators, operands[1:]):
        link = _link(left, operator, right, next(iter(names)))
        if link is None:
            return None
        links.append(link)
    return links[0] if len(links) == 1 else Combined("intersection", tuple(links))


def _link(left: Node, operator: str, right: Node, name: str) -> RealSet | None:
    """The values of a variable for which a linear or quadratic relation holds, or one of an absolute value."""
    match left:
        case FunctionCall("abs", (inner,)) if name not in free_symbols(right):
            return _magnitude(inner, operator, right, name)
    if left == Symbol(name) and name not in free_symbols(right):
        bound, rising = right, True
    elif right == Symbol(name) and name not in free_symbols(left):
        bound, rising = left, False
    else:
        vanishing = difference(left, right)
        solved = _solved(vanishing, name)
        if solved is None:
            curve = quadratic(vanishing, name)
            return None if curve is None else _where(curve, operator)
        bound, rising = solved
    if not rising:
        operator = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
    match operator:
        case "<" | "<=":
            return Stretch(negated(INFINITY), bound, False, operator == "<=")
        case ">" | ">=":
            return Stretch(bound, INFINITY, operator == ">=", False)
        case "=":
            return Stretch(bound, bound, True, True)
        case "!=":
            return Combined("difference", (ALL, Stretch(bound, bound, True, True)))
        case _:
            return None


def _where(curve: Quadratic, operator: str) -> RealSet | None:
    """The values for which a polynomial of degree two is below, above, at or off zero; None if it is constant."""
    if curve[2] == 0:
        return None
    points = tuple(Stretch(root, root, True, True) for root in roots(curve))
    at = Combined("union", points)
    if operator == "=":
        return at
    if operator == "!=":
        return Combined("difference", (ALL, at))
    if operator not in ("<", "<=", ">", ">="):
        return None
    closed = "=" in operator
    between: tuple[RealSet, ...] = points if closed else ()
    if len(points) == 2:
        between = (Stretch(points[0].low, points[1].low, closed, closed),)
    if operator.startswith("<") == (curve[2] > 0):
        return Combined("union", between)
    inside = Combined("union", (Stretch(points[0].low, points[-1].low, not closed, not closed),) if points else ())
    return Combined("difference", (ALL, inside))


def _magnitude(inner: Node, operator: str, bound: Node, name: str) -> RealSet | None:
    """|u| < c is -c < u < c, |u| > c is u < -c or u > c, and |u| = c is u = -c or u = c if c is not below zero."""
    how = {"<": "intersection", "<=": "intersection", ">": "union", ">=": "union", "=": "union"}.get(operator)
    size = approximate(bound) if operator == "=" else None
    if how is None or name in _COMPLEX or (operator == "=" and (size is None or size < 0)):
        return None
    parts = (_link(negated(bound), operator, inner, name), _link(inner, operator, bound, name))
    return Combined(how, tuple(part for part in parts if part is not None)) if None not in parts else None


def _solved(vanishing: Node, name: str) -> tuple[Node, bool] | None:
    """Where a linear formula vanishes, and whether it rises there; None if it is not linear with rational slope."""
    if not arithmetic(vanishing):
        return None
    at = [replaced(vanishing, {name: Number(ZERO.value + point)}) for point in (0, 1, 2, 3)]
    steps = [rational_or_none(difference(after, before)) for before, after in itertools.pairwise(at)]
    if steps[0] is None or steps[0] == 0 or not steps[0] == steps[1] == steps[2]:
        return None
    if _curved(vanishing, name):
        return None
    return Product((Number(-1 / steps[0]), at[0])), steps[0] > 0


def _curved(node: Node, name: str) -> bool:
    """Whether the variable occurs outside of sums and products: a formula with equal steps may still be nonlinear."""
    if name not in free_symbols(node):
        return False
    match node:
        case Symbol():
            return False
        case Sum(terms):
            return any(_curved(term, name) for term in terms)
        case Product(factors):
            holding = [factor for factor in factors if name in free_symbols(factor)]
            return len(holding) != 1 or _curved(holding[0], name)
        case Power():
            return True
        case _:
            return True


def stretches_of(part: RealSet) -> Iterator[Stretch]:
    """All its parts."""
    if isinstance(part, Stretch):
        yield part
    else:
        for inner in part.parts:
            yield from stretches_of(inner)


def is_no_union(part: RealSet, places: Sequence[float], rank: Mapping[Node, float]) -> bool:
    """Whether parts of a list overlap or are empty: x > 1, x < 5 means that both hold."""
    if isinstance(part, Stretch) or part.operator != "list":
        return False
    inside = [[contains(inner, place, rank) for place in places] for inner in part.parts]
    return not all(map(any, inside)) or any(column.count(True) > 1 for column in zip(*inside))


def contains(part: RealSet, place: float, rank: Mapping[Node, float]) -> bool:
    """Whether a place is in it: that of the n-th finite bound is n, that of the gap after it n + 1/2.

    Infinity is a place as well; only sets like [0, infinity] contain it.
    """
    if isinstance(part, Combined):
        match part.operator:
            case "union" | "list":
                return any(contains(inner, place, rank) for inner in part.parts)
            case "intersection":
                return all(contains(inner, place, rank) for inner in part.parts)
            case _:
                first, *rest = part.parts
                return contains(first, place, rank) and not any(contains(inner, place, rank) for inner in rest)
    low, high = rank[part.low], rank[part.high]
    if low >= high:
        return place == low == high and part.low_closed and part.high_closed
    return low < place < high or (place == low and part.low_closed) or (place == high and part.high_closed)
