"""The value of a constant as a number: for sorting, rounding, and comparing infinities."""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb

from crucible_worker.grading.math.balls import FEW_BITS, rounded
from crucible_worker.grading.math.evaluate import Evaluation
from crucible_worker.grading.math.evaluate_work import NoValue, Work
from crucible_worker.grading.math.exact import Undefined, rational
from crucible_worker.grading.math.tree import Constant, Node, Product, Sum

__all__ = ["MAX_DIGITS", "approximate", "decimal_value"]

MAX_DIGITS = 100
"""Most digits that can be requested."""

_MAX_STEPS = 2_000
_MIN_BITS = 40
_GUARD_BITS = 64


def approximate(node: Node) -> float | None:
    """The real value of a constant to 12 digits; infinity and its negative as such.

    Returns:
        None if it has symbols or no value, is not real, or is finite but beyond floats.
    """
    infinite = _infinite(node)
    if infinite is not None:
        return infinite
    try:
        value = Evaluation(Work(_MAX_STEPS), {}, {}, real=False, bits=FEW_BITS).value(node)
        if isinstance(value, arb) and value.rel_accuracy_bits() >= _MIN_BITS:
            near = float(value)
            return near if math.isfinite(near) else None
    except NoValue:
        pass  # more bits decide what few bits cannot
    except (Undefined, RecursionError):
        return None
    precise = decimal_value(node, 16)
    if precise is None:
        return None
    try:
        return precise.numerator / precise.denominator
    except OverflowError:
        return None


def decimal_value(node: Node, digits: int) -> Fraction | None:
    """The real value of a constant, exact or to so many significant digits, at most `MAX_DIGITS`.

    Returns:
        None if it has symbols or no value, is not real, or its digits cannot be computed. What seems to be 0 is 0.
    """
    bits = int(min(digits, MAX_DIGITS) * math.log2(10)) + 1
    try:
        exact = rational(node)
        if exact is not None:
            return exact
        evaluation = Evaluation(Work(_MAX_STEPS), {}, {}, real=False, bits=2 * bits + _GUARD_BITS)
        return rounded(evaluation.balls, evaluation.value(node), bits)
    except (NoValue, Undefined, RecursionError):
        return None


def _infinite(node: Node) -> float | None:
    """Plus or minus infinity, times or plus finite terms."""
    match node:
        case Constant(name="infinity"):
            return math.inf
        case Product():
            parts = node.factors
        case Sum():
            parts = node.terms
        case _:
            return None
    found = [value for value in map(_infinite, parts) if value is not None]
    if not found:
        return None
    values = [approximate(part) for part in parts]
    total = 0.0 if isinstance(node, Sum) else 1.0
    for value in values:
        if value is None:
            return None
        total = total + value if isinstance(node, Sum) else total * value
    return total if math.isinf(total) else None
