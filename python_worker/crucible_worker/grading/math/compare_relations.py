"""Comparing equations and inequalities with each other, and equations with values.

An equation has a meaning beyond its form: the value that it gives, and which other equations mean the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

from crucible_worker.grading.math.compare_values import constant_levels
from crucible_worker.grading.math.evaluate import approximate
from crucible_worker.grading.math.exact import rational_or_none
from crucible_worker.grading.math.identity import (
    ExpressionRelation,
    MathOutcome,
    Scope,
    all_of,
    any_of,
    different,
    equal,
    unknown,
)
from crucible_worker.grading.math.reading import negated
from crucible_worker.grading.math.tokens import UNITS
from crucible_worker.grading.math.tree import (
    ONE,
    ZERO,
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
    arithmetic,
    free_symbols,
    nodes_of,
    ordered_symbols,
    rebuilt,
    replaced,
)

__all__ = [
    "approximate_part",
    "compare_equation_with_value",
    "compare_relations",
    "difference",
    "exact_part",
    "flipped",
    "is_name",
    "parts_of",
    "proportional",
    "solves",
    "value_of",
    "with_deltas_named",
]

_POINTS = ((3, 7, 11, 5, 13), (-2, 9, 4, -17, 6), (19, -8, 23, 10, -3))
"""Values of the variables at which two equations are compared: any values will do if neither side vanishes."""
_MAX_PLACES = 16  # decimals that a double stores
_HALF = Fraction(1, 2)
_PURE_UNITS = frozenset({"degree", "percent"})  # which are numbers
_MEASURES = frozenset(UNITS.values())  # other names are those of counted things
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
    node = _without_units(node)
    return arithmetic(node) and not free_symbols(node)


def _without_units(node: Node) -> Node:
    """A formula with the values of its quantities: `5 apples * $2` is 5 * 2."""
    return _without_units(node.value) if isinstance(node, Quantity) else rebuilt(node, _without_units)


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


Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "approx"]


# Comparing relations.

_FLIPPED: dict[Operator, Operator] = {
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
    "=": "=",
    "!=": "!=",
    "approx": "approx",
}


def flipped(relation: Relation) -> Relation | None:
    """The same read from right to left; None if that is not possible."""
    if "in" in relation.operators:
        return None
    return Relation(relation.operands[::-1], tuple(_FLIPPED[operator] for operator in reversed(relation.operators)))


def parts_of(relation: Relation) -> Collection | None:
    """(x, y) = (1, 2) and x = y = 2 as lists of each name's value; None for other relations."""
    match relation:
        case Relation((Collection(_, names), Collection(_, values)), ("=",)) if len(names) == len(values):
            pairs = zip(names, values)
        case Relation((*names, value), operators) if len(names) > 1 and {*operators} == {"="}:
            if not all(isinstance(name, Symbol) for name in names):
                return None
            pairs = ((name, value) for name in names)
        case _:
            return None
    return Collection("list", tuple(Relation((name, value), ("=",)) for name, value in pairs))


def compare_equation_with_value(equation: Relation, value: Node, scope: Scope, *, reverse: bool) -> MathOutcome:
    """Compare an equation with a single value. `reverse`: the equation is the answer."""
    if not scope.policy.equation_value and isinstance(exact_part(equation), Relation):
        return different("structure", "an equation on one side only")
    if scope.policy.delta_value:
        equation = with_deltas_named(equation)
    said = value_of(equation)
    if said is not None:
        if _is_false(equation):
            return different("structure", "a false equation")
        return scope.compare(value, said, scope) if reverse else scope.compare(said, value, scope)
    exact = exact_part(equation)
    if not isinstance(exact, Relation) or exact.operators != ("=",):
        return different("structure", "a relation on one side only")
    missing = free_symbols(difference(*exact.operands)) - free_symbols(value)
    if len(missing) == 1 and arithmetic(value):
        return solves(exact, next(iter(missing)), value, scope)
    return different("structure", "an equation on one side only")


def _is_false(equation: Relation) -> bool:
    """Whether two adjacent numbers of an equation are not equal, 5 = 6; decimals may be rounded."""
    operands = equation.operands
    units = {part.unit for node in operands for part in nodes_of(node) if isinstance(part, Quantity)}
    converts = any(isinstance(node, Quantity) and isinstance(node.value, Number) for node in operands[:-1])
    measures = [unit for unit in units if len(units) == 1 or not _MEASURES.isdisjoint(unit.split())]
    if units.isdisjoint(_PURE_UNITS) and len(measures) == 1 and not (converts and len(units) > 1):
        operands = tuple(map(_without_units, operands))  # $5 + $6 = $12, "7 lamps * $5 = $36"
    values = [None if isinstance(node, Number) and node.decimal else rational_or_none(node) for node in operands]
    return any(None not in pair and pair[0] != pair[1] for pair in itertools.pairwise(values))


def compare_relations(target: Relation, answer: Relation, scope: Scope) -> MathOutcome:
    """Compare two relations, as written, and by their meaning."""
    left, right = exact_part(target), exact_part(answer)
    if not isinstance(left, Relation) or not isinstance(right, Relation):
        return scope.compare(left, right, scope)
    if _has_modulus(left) != _has_modulus(right):
        return different("structure", "a congruence on one side only")
    as_written = _compare_chains(left, right, scope)
    if as_written.kind == "equal":
        return as_written
    operators = {*left.operators, *right.operators}
    parts, other_parts = parts_of(left), parts_of(right)
    if parts is not None and other_parts is not None:
        return any_of((as_written, scope.compare(parts, other_parts, scope)))
    if operators == {"="}:
        if scope.policy.integration_constants and (renamed := constant_levels(left, right)) is not None:
            right = renamed
        return any_of((as_written, _compare_equations(left, right, scope)))
    if len(left.operators) == len(right.operators) == 1 and not operators & {"in", "approx"}:
        return any_of((as_written, _compare_inequalities(left, right, scope)))
    return as_written


def _has_modulus(relation: Relation) -> bool:
    last = relation.operands[-1]
    return isinstance(last, FunctionCall) and last.function == "residue"


def _compare_chains(target: Relation, answer: Relation, scope: Scope) -> MathOutcome:
    """Part by part, from either end."""
    ways = [way for way in (answer, flipped(answer)) if way is not None and way.operators == target.operators]
    if not ways:
        return different("structure", "other relations")
    return any_of(all_of(scope.each(target.operands, way.operands)) for way in ways)


def _compare_equations(target: Relation, answer: Relation, scope: Scope) -> MathOutcome:
    target_name, answer_name = _name(target), _name(answer)
    if target_name is not None and answer_name is not None:
        renamed = _renamed(target_name, answer_name, answer.operands[-1], scope)
        if renamed is not None:
            outcome = scope.compare(target.operands[-1], renamed, scope)
            if outcome.kind != "different" or not isinstance(target_name, Symbol):
                return outcome
        elif not (free_symbols(target.operands[-1]) and free_symbols(answer.operands[-1])):
            return different("structure", "values of different names")
    if len(target.operators) > 1 or len(answer.operators) > 1:
        return different("structure", "other equations")
    return _compare_vanishing(target, answer, scope)


def _name(equation: Relation) -> Node | None:
    """The name whose value an equation gives: its first part, if that is a name."""
    first = equation.operands[0]
    return first if is_name(first) and value_of(equation) is not None else None


def _renamed(target: Node, answer: Node, value: Node, scope: Scope) -> Node | None:
    """The answer's value in the variables of the target; None if they are values of different names.

    The name of a function's variable does not matter: f(x) = x is f(t) = t, and y = 2x is f(x) = 2x.
    """
    match target, answer:
        case FunctionCall(function, (Symbol(name),)), FunctionCall(other, (Symbol(other_name),)) if (
            function == other and unknown_function(function) and _is_argument(other_name, value)
        ):
            if name == other_name:
                return value
            # In f(y) = -x the x is not an argument, and is not renamed.
            return None if name in free_symbols(value) else replaced(value, {other_name: Symbol(name)})
        case (FunctionCall(function, arguments), Symbol("y") as name) | (
            Symbol("y") as name,
            FunctionCall(function, arguments),
        ) if unknown_function(function) and name not in arguments:
            return value
        case _:
            return value if scope.compare(target, answer, scope).kind == "equal" else None


def _is_argument(name: str, value: Node) -> bool:
    """Whether a name in brackets stands for any value; the A of P(A) = 1/2 is a certain event."""
    return not name[0].isupper() or name in free_symbols(value)


def _compare_vanishing(target: Relation, answer: Relation, scope: Scope) -> MathOutcome:
    """Two equations are the same if their left minus right sides are equal, up to a constant factor."""
    left, right = difference(*target.operands), difference(*answer.operands)
    outcome, _ = proportional(left, right, scope)
    if outcome.kind == "different" and free_symbols(left) == free_symbols(right):
        for one, other in ((target, answer), (answer, target)):
            name, value = one.operands[0], one.operands[-1]
            if isinstance(name, Symbol) and name.name not in free_symbols(value):
                solved = solves(other, name.name, value, scope)
                if solved.kind == "equal":
                    return solved
    return outcome


def _compare_inequalities(target: Relation, answer: Relation, scope: Scope) -> MathOutcome:
    """Two inequalities are the same if a positive multiple of one is the other, or a negative one reversed."""
    left_side, right_side = target.operands, answer.operands
    outcome, sign = proportional(difference(*left_side), difference(*right_side), scope)
    if outcome.kind == "different":
        return outcome
    expected, said = target.operators[0], answer.operators[0]
    if expected == said == "!=":
        return outcome
    if sign == 0:
        return unknown("the sign of a factor is not known")
    if said != (expected if sign > 0 else _FLIPPED[expected]):
        return different("structure", "the other direction")
    return outcome
