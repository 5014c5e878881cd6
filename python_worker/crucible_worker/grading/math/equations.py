"""The meaning of an equation beyond its form: the value that it gives, and which other equations mean the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.identity import ExpressionRelation
from crucible_worker.grading.math.outcome import MathOutcome, Scope, different, equal, unknown
from crucible_worker.grading.math.tidy import ONE, ZERO, negated
from crucible_worker.grading.math.tree import (
    Collection,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    Text,
)
from crucible_worker.grading.math.walk import arithmetic, free_symbols, ordered_symbols, replaced

__all__ = [
    "approximate_part",
    "difference",
    "exact_part",
    "is_name",
    "proportional",
    "solves",
    "value_of",
    "with_deltas_named",
]

_POINTS = ((3, 7, 11, 5, 13), (-2, 9, 4, -17, 6), (19, -8, 23, 10, -3))
"""Values of the variables at which two equations are compared: any values will do if neither side vanishes."""
_MAX_PLACES = 16  # decimals that a double stores
_HALF = Fraction(1, 2)
_NAMED = frozenset({"abs", "ratio", "det", "min", "max"})
# Names of functions in f(x), T(10), P(X > 1), P(A \cup B).
_ARGUMENTS = (Symbol, Number, Relation, SetOperation)


def exact_part(relation: Relation) -> Relation | Node:
    r"""An equation without its approximation: x = 1/3 \approx 0.33 is x = 1/3, x \approx 3 is x = 3."""
    operands, operators = relation.operands, relation.operators
    if "approx" not in operators or any(operator not in ("=", "approx") for operator in operators):
        return relation
    cut = operators.index("approx")
    if cut == 0 and is_name(operands[0]):
        return Relation(operands[:2], ("=",))
    if cut == 0:
        return operands[0]
    return Relation(operands[: cut + 1], operators[:cut])


def approximate_part(node: Node) -> Node | None:
    r"""The value of an approximation that rounds its exact side: `\pi \approx 3.14` gives 3.14, `2 \approx 3` nothing.

    `3.14 \approx \pi` gives \pi. For a list, the list of its approximations' values. None without one.
    """
    if isinstance(node, Collection):
        parts = [approximate_part(item) for item in node.items]
        if not any(parts):
            return None
        return Collection(node.kind, tuple(part or item for part, item in zip(parts, node.items, strict=True)))
    if not isinstance(node, Relation) or node.operators[-1] != "approx":
        return None
    operands, cut = node.operands, node.operators.index("approx")
    if cut == 0 and isinstance(operands[0], Number) and operands[0].decimal and _rounds(operands[-1], operands[0]):
        return operands[-1]
    if any(operator not in ("=", "approx") for operator in node.operators) or not _rounds(operands[cut], operands[-1]):
        return None
    return Relation((operands[0], operands[-1]), ("=",)) if cut and is_name(operands[0]) else operands[-1]


def _rounds(exact: Node, near: Node) -> bool:
    """Whether a decimal is a value rounded, or cut off, at its last place."""
    if isinstance(exact, Quantity) and isinstance(near, Quantity) and exact.unit == near.unit:
        exact, near = exact.value, near.value
    value = approximate(exact)
    if value is None or math.isinf(value) or not isinstance(near, Number):
        return False
    places = next((places for places in range(_MAX_PLACES) if (near.value * 10**places).denominator == 1), None)
    if places is None:
        return False
    distance = abs(Fraction(value) - near.value) * 10**places
    return distance < 1 if places else distance <= _HALF


def is_name(node: Node) -> bool:
    """Whether this only names the unknown of the question: x, f(x), |AB|, A:B, (x, y), "maximum"."""
    match node:
        case Symbol() | Text():
            return True
        case Quantity(value, _):
            return is_name(value)
        case Collection("tuple" | "list", items):
            return bool(items) and all(map(is_name, items))
        case FunctionCall("limit" | "integral" | "derivative" | "slope" | "minimum" | "maximum"):
            return True
        case FunctionCall("abs", (Symbol("x" | "y"),)):
            return False  # |x| = 1 means x = 1 or x = -1
        case FunctionCall("conjugate", (Product(digits),)):
            return all(isinstance(digit, Symbol) for digit in digits)  # \overline{abc}
        case FunctionCall(function, arguments) if function in _NAMED:
            return all(isinstance(argument, Symbol) for argument in arguments)
        case FunctionCall(function, arguments):
            return unknown_function(function) and all(isinstance(argument, _ARGUMENTS) for argument in arguments)
        case Product((Symbol(), Power(Symbol(), Number(exponent)))):
            return exponent == -1
        case Product((Symbol(), SetOperation())):
            return True  # P(A \cap B), which is not a product
        case _:
            return False


def with_deltas_named(equation: Relation) -> Relation:
    r"""An equation in which a difference alone on a side, `\Delta x`, is a name, not a product."""
    return Relation(tuple(map(_delta_named, equation.operands)), equation.operators)


def _delta_named(node: Node) -> Node:
    match node:
        case Product((Symbol("Delta"), Symbol(name))):
            return Symbol(f"Delta {name}")
        case Quantity(value, unit):
            return Quantity(_delta_named(value), unit)
        case _:
            return node


def unknown_function(function: str) -> bool:
    """Whether a call is of a function that only the question knows: f, g, T."""
    return len(function) <= 2 or "_" in function or "'" in function


def value_of(relation: Relation) -> Node | None:
    """The value that an equation gives its name: 5 of x = 5, of 5 = x and of x = 2 + 3 = 5; None if it gives none.

    All parts of a chain before the last must be names, or numbers computed step by step.
    """
    exact = exact_part(relation)
    if not isinstance(exact, Relation):
        return exact
    if any(operator != "=" for operator in exact.operators):
        return None
    *before, last = exact.operands
    named = any(map(is_name, before))
    if all(is_name(node) or _constant(node) for node in before):
        if named or _constant(last):
            return None if _mentions(last, before) else last
        return before[0] if len(before) == 1 and is_name(last) else None
    # A name that is computed in formulas: A = \\pi r^2 = 4 \\pi; or a name that comes last: 2 + 3 = x.
    if is_name(before[0]) and len(before) > 1:
        return None if _mentions(last, before[:1]) else last
    return before[0] if len(before) == 1 and is_name(last) and not _mentions(before[0], [last]) else None


def _constant(node: Node) -> bool:
    if isinstance(node, Quantity):
        node = node.value
    return arithmetic(node) and not free_symbols(node)


def _mentions(value: Node, names: list[Node]) -> bool:
    """Whether a value contains the variable whose value it is."""
    plain = {name.name for name in names if isinstance(name, Symbol)}
    return bool(plain) and bool(plain & free_symbols(value))


def difference(left: Node, right: Node) -> Node:
    """Left minus right: the equation means that it vanishes."""
    return left if right == ZERO else Sum((left, negated(right)))


def proportional(target: Node, answer: Node, scope: Scope) -> tuple[MathOutcome, int]:
    """Whether a formula is a constant multiple of another, and the sign of that constant; 0 if it is not known."""
    names = ordered_symbols(target)
    if free_symbols(answer) != frozenset(names) or not names or not (arithmetic(target) and arithmetic(answer)):
        return different("structure", "other variables"), 0
    for values in _substitutions(names):
        at_target, at_answer = replaced(target, values), replaced(answer, values)
        scale, sign = _ratio(at_target, at_answer, scope)
        if scale is None:
            continue
        if scale == ZERO:
            return different("identity"), 0
        finding = scope.examine(target, Product((scale, answer)))
        if finding.identity is ExpressionRelation.EQUAL:
            return equal("identity"), sign
        if finding.identity is ExpressionRelation.DIFFERENT:
            return different("identity"), sign
        return unknown(
            finding.reason, ((target, Product((scale, answer))),), method="identity", agrees=finding.agrees
        ), sign
    return unknown("no point where both sides have a value"), 0


def _substitutions(names: tuple[str, ...]) -> Iterator[dict[str, Node]]:
    for point in _POINTS:
        yield {name: Number(ONE.value * value) for name, value in zip(names, itertools.cycle(point))}


def _ratio(target: Node, answer: Node, scope: Scope) -> tuple[Node | None, int]:
    """Target over answer, and its sign; ZERO if one of them vanishes, None if both do or it is unknown."""
    above, below = rational_or_none(target), rational_or_none(answer)
    if above is not None and below is not None:
        if above == 0 and below == 0:
            return None, 0
        if above == 0 or below == 0:
            return ZERO, 0
        return Number(above / below), 1 if above / below > 0 else -1
    vanishing = [scope.examine(node, ZERO).identity for node in (target, answer)]
    if vanishing.count(ExpressionRelation.EQUAL) == 1 and vanishing.count(ExpressionRelation.DIFFERENT) == 1:
        return ZERO, 0
    if vanishing != [ExpressionRelation.DIFFERENT, ExpressionRelation.DIFFERENT]:
        return None, 0
    return Product((target, Power(answer, Number(-ONE.value)))), 0


def solves(equation: Relation, name: str, value: Node, scope: Scope) -> MathOutcome:
    """Whether `name = value` means the same as an equation: it satisfies it, and the equation has one solution for it.

    That is so if the equation is linear in that variable, like xy = 6 in y.
    """
    left, right = equation.operands
    vanishing = difference(left, right)
    if not arithmetic(vanishing) or not arithmetic(value):
        return different("structure")
    finding = scope.examine(replaced(vanishing, {name: value}), ZERO)
    if finding.identity is not ExpressionRelation.EQUAL:
        return different("identity", "it does not satisfy the equation")
    at = [replaced(vanishing, {name: Number(ONE.value * point)}) for point in (-2, 1, 4)]
    second = Sum((at[0], Product((Number(-2 * ONE.value), at[1])), at[2]))
    linear = scope.examine(second, ZERO).identity is ExpressionRelation.EQUAL
    if not linear and _is_multiple_root(vanishing, name, value, scope):
        return equal("identity", "the equation solved")
    if not linear or scope.examine(at[0], at[1]).identity is not ExpressionRelation.DIFFERENT:
        return different("identity", "the equation has other solutions too")
    return equal("identity", "the equation solved")


def _is_multiple_root(vanishing: Node, name: str, value: Node, scope: Scope) -> bool:
    """Whether the vanishing side is a power of the distance from one value, as in (x - 1)^2 = 0."""
    distance = Sum((Symbol(name), negated(value)))
    powers = (Power(distance, Number(degree * ONE.value)) for degree in (2, 3))
    return any(proportional(vanishing, power, scope)[0].kind == "equal" for power in powers)
