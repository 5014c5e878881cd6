r"""Vectors as sums of unit vectors, `2\hat{i} + 3\hat{j}`, and as components, `(2, 3)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible_worker.grading.math.assembly import added, multiplied
from crucible_worker.grading.math.tidy import ONE, ZERO
from crucible_worker.grading.math.tree import Collection, Constant, Matrix, Node, Product, Sum, Symbol
from crucible_worker.grading.math.walk import walk

__all__ = ["MAX_NODES", "in_components"]

MAX_NODES = 400
"""Nodes of a sum of unit vectors that is split."""

_MARKED = (
    (Symbol("hat i"), Symbol("hat j"), Symbol("hat k")),
    (Symbol("hat x"), Symbol("hat y"), Symbol("hat z")),
)
# Unmarked letters are unit vectors if j is among them: i alone is the imaginary unit.
_PLAIN = (Constant("i"), Symbol("j"), Symbol("k"))


def in_components(target: Node, answer: Node) -> tuple[Node, Node] | None:
    """Both as components, if one of them is a sum of unit vectors; otherwise None."""
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if not isinstance(one, Sum | Product | Symbol):
            continue
        size = _size(other)
        components = _components(one, size) if size in (2, 3) else None
        if components is not None:
            vector = Collection(other.kind if isinstance(other, Collection) else "tuple", components)
            return (other, vector) if reverse else (vector, other)
    return None


def _size(node: Node) -> int:
    """How many components a vector has; 0 if it is not a vector."""
    match node:
        case Collection("tuple" | "bracket", items):
            return len(items)
        case Matrix(rows) if len(rows) == 1 or len(rows[0]) == 1:
            return max(len(rows), len(rows[0]))
        case _:
            return 0


def _components(node: Node, size: int) -> tuple[Node, ...] | None:
    parts = walk(node)
    if len(parts) > MAX_NODES:
        return None
    for basis in (*_MARKED, _PLAIN):
        if not any(unit in parts for unit in basis):
            continue
        if basis is _PLAIN and not (Symbol("j") in parts and (Constant("i") in parts or Symbol("k") in parts)):
            continue
        coefficients = _coefficients(node, basis)
        if coefficients is None or any(coefficients[unit] for unit in basis[size:]):
            return None
        return tuple(added(coefficients[unit] or [ZERO]) for unit in basis[:size])
    return None


def _coefficients(node: Node, basis: Sequence[Node]) -> Mapping[Node, list[Node]] | None:
    """The factors of each unit vector, as terms; None if a part has no unit vector, or more than one."""
    if node in basis:
        return {unit: [ONE] if unit == node else [] for unit in basis}
    if isinstance(node, Sum):
        found: dict[Node, list[Node]] = {unit: [] for unit in basis}
        for term in node.terms:
            coefficients = _coefficients(term, basis)
            if coefficients is None:
                return None
            for unit in basis:
                found[unit] += coefficients[unit]
        return found
    if isinstance(node, Product):
        vectors = [factor for factor in node.factors if any(unit in walk(factor) for unit in basis)]
        coefficients = _coefficients(vectors[0], basis) if len(vectors) == 1 else None
        if coefficients is None:
            return None
        scalars = [factor for factor in node.factors if factor is not vectors[0]]
        return {unit: [multiplied([*scalars, term]) for term in terms] for unit, terms in coefficients.items()}
    return None
