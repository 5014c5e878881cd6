"""Shared by evaluations: reasons for a missing value, the remaining budget, and units as numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from crucible_worker.grading.math.exact import based_value, rational
from crucible_worker.grading.math.tree import Based, Constant, Node, Number, Product, Quantity

__all__ = ["NoValue", "NotReal", "Trait", "Work"]


class NoValue(Exception):
    """This arithmetic cannot determine the value."""


class NotReal(NoValue):
    """The value, or a part of it, is not real, but only real values were requested."""


class Trait:
    """Non-constant parts of an expression that require more than a few points: bits of an integer."""

    BRANCHES: Final = 1
    """Roots, logarithms, inverse functions, absolute values: it may consist of pieces."""
    JUMPS: Final = 2
    """Floors, divisors: agreement at some points is not a proof."""
    COUNTS: Final = 4
    """Factorials and the like: its symbols may be meant to be natural numbers."""
    CONJUGATES: Final = 8
    """Conjugates, real parts: real points are not enough if symbols are complex."""


class Work:
    """What all evaluations of one pair share: the steps that are left, and the results for nodes."""

    __slots__ = ("_exact", "_lowered", "_refused", "hidden", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.hidden = 0
        """Bits below the leading one in which something matters: agreement in fewer bits does not show it."""
        self._exact: dict[int, Fraction | None] = {}
        self._refused: set[int] = set()
        self._lowered: dict[int, Node] = {}

    def charge(self, steps: int) -> None:
        """Take steps.

        Raises:
            NoValue: none are left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise NoValue("too much to compute")

    def exact(self, node: Node) -> Fraction | None:
        """The exact value of a node, if it is a rational constant. The node must outlive this."""
        if type(node) is Number:
            return node.value
        key = id(node)
        if key not in self._exact:
            self._exact[key] = rational(node, self._refused)
        return self._exact[key]

    def lowered(self, node: Quantity | Based) -> Node:
        """A degree, a percent sign or a base inside arithmetic, as a number: always the same node for a node.

        Raises:
            NoValue: for every other unit.
        """
        result = self._lowered.get(id(node))
        if result is None:
            result = self._lowered[id(node)] = _lowered(node)
        return result


def _lowered(node: Quantity | Based) -> Node:
    if isinstance(node, Based):
        return Number(based_value(node))
    if node.unit == "percent":
        return Product((node.value, Number(Fraction(1, 100))))
    if node.unit == "degree":
        return Product((node.value, Number(Fraction(1, 180)), Constant("pi")))
    raise NoValue("a unit")
