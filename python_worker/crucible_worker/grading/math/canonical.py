"""Trees that differ only in order: a key that is the same for sums and products with their parts exchanged."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from fractions import Fraction

from crucible_worker.grading.math.exact import Undefined, rational
from crucible_worker.grading.math.tree import Collection, FunctionCall, Node, Number, Product, Relation, Sum
from crucible_worker.grading.math.walk import children

__all__ = ["exact_key", "factors_of", "order_key", "rational_or_none"]

_ANY_ORDER = frozenset({"gcd", "lcm", "min", "max", "conjunction", "disjunction"})


def rational_or_none(node: Node) -> Fraction | None:
    """The exact value; also None if there is none."""
    try:
        return rational(node)
    except Undefined:
        return None


def order_key(node: Node) -> Hashable:
    """A key: equal keys are equal trees except for the order of terms, of factors, and of unordered arguments."""
    match node:
        case Number(value):
            return (value.numerator, value.denominator)
        case Sum(terms):
            return ("+", _sorted(itertools.chain.from_iterable(_parts(term, Sum) for term in terms)))
        case Product(factors):
            return ("*", _sorted(itertools.chain.from_iterable(_parts(factor, Product) for factor in factors)))
        case FunctionCall(function, arguments) if function in _ANY_ORDER:
            return (function, _sorted(arguments))
        case _:
            parts = children(node)
            if not parts:
                return node
            return (_shape(node), *map(order_key, parts))


def exact_key(node: Node) -> Hashable | None:
    """A key for values that are known exactly, for matching long lists; None if the value is not."""
    if isinstance(node, Collection) and node.kind == "tuple":
        keys = tuple(map(exact_key, node.items))
        return None if None in keys else ("tuple", keys)
    if isinstance(node, Collection | Relation):
        return None
    return rational_or_none(node)


def factors_of(node: Product) -> tuple[Node, ...]:
    """The factors of a product, those of products within it too."""
    return _parts(node, Product)


def _parts(node: Node, kind: type[Sum | Product]) -> tuple[Node, ...]:
    """Terms of a sum within a sum, factors of a product within a product."""
    if not isinstance(node, kind):
        return (node,)
    return tuple(itertools.chain.from_iterable(_parts(part, kind) for part in children(node)))


def _sorted(nodes: Iterable[Node]) -> tuple[Hashable, ...]:
    return tuple(sorted(map(order_key, nodes), key=repr))


def _shape(node: Node) -> Hashable:
    """The kind of a node, apart from its parts."""
    fields = [type(node).__name__]
    for name in ("function", "unit", "kind", "operator", "operators", "low_closed", "high_closed"):
        value = getattr(node, name, None)
        if value is not None:
            fields.append(str(value))
    return tuple(fields)
