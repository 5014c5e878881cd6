"""Spans of time in several units, `2 hours 30 minutes`, and in one of them, `2.5 hours`."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from crucible_worker.grading.math.outcome import MathOutcome, Scope
from crucible_worker.grading.math.tree import Node, Number, Product, Quantity, Sum

__all__ = ["compare_durations"]

_SECONDS: Mapping[str, Number] = {
    unit: Number(Fraction(seconds))
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
}


def compare_durations(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Compare two spans of time, at least one of which has several units; None if they are not such spans.

    A span in one unit must use a unit of the other: 150 minutes are not 2.5 hours unless units are converted.
    """
    parts, others = _parts(target), _parts(answer)
    if not parts or not others or max(len(parts), len(others)) == 1:
        return None
    for one, two in ((parts, others), (others, parts)):
        if len(one) == 1 and one[0].unit not in {part.unit for part in two}:
            return None
    return scope.compare(_in_seconds(parts), _in_seconds(others), scope)


def _parts(node: Node) -> tuple[Quantity, ...]:
    terms = node.terms if isinstance(node, Sum) else (node,)
    parts = tuple(term for term in terms if isinstance(term, Quantity) and term.unit in _SECONDS)
    return parts if len(parts) == len(terms) else ()


def _in_seconds(parts: tuple[Quantity, ...]) -> Node:
    products = tuple(Product((_SECONDS[part.unit], part.value)) for part in parts)
    return products[0] if len(products) == 1 else Sum(products)
