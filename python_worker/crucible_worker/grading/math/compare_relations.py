"""Comparing equations and inequalities with each other, and equations with values."""

from __future__ import annotations

import itertools
from typing import Literal

from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.constants import constant_levels
from crucible_worker.grading.math.equations import (
    difference,
    exact_part,
    is_name,
    proportional,
    solves,
    unknown_function,
    value_of,
    with_deltas_named,
)
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, any_of, different, unknown
from crucible_worker.grading.math.tree import Collection, FunctionCall, Node, Number, Relation, Symbol
from crucible_worker.grading.math.walk import arithmetic, free_symbols, replaced

__all__ = ["compare_equation_with_value", "compare_relations", "flipped", "parts_of"]

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "approx"]

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
    values = [
        None if isinstance(node, Number) and node.decimal else rational_or_none(node) for node in equation.operands
    ]
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
