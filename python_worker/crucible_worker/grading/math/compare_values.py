"""Comparing numbers, formulas and quantities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from crucible_worker.grading.math.approximate import MAX_DIGITS, decimal_value
from crucible_worker.grading.math.canonical import factors_of, order_key, rational_or_none
from crucible_worker.grading.math.constants import same_family
from crucible_worker.grading.math.exact import Undefined, rational
from crucible_worker.grading.math.identity import ExpressionRelation
from crucible_worker.grading.math.indices import stems
from crucible_worker.grading.math.outcome import MathOutcome, Scope, any_of, different, equal, unknown
from crucible_worker.grading.math.tidy import MINUS_ONE, ONE
from crucible_worker.grading.math.too_long import compare_by_size
from crucible_worker.grading.math.tree import (
    Based,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Symbol,
)
from crucible_worker.grading.math.units import LETTER_UNITS, UNITS, powered
from crucible_worker.grading.math.walk import BINDING, arithmetic, free_symbols, nodes_of

__all__ = ["compare_numbers", "compare_values", "is_reduced"]

_HUNDREDTH = Number(Fraction(1, 100))
_DEGREE = Product((Constant("pi"), Power(Number(Fraction(180)), Number(Fraction(-1)))))
_GUARD_DIGITS = 10
_MAX_UNIT_LETTERS = 4
_MICRO = Symbol("mu")
_OHM = Symbol("Omega")
_LEFT_OUT = Symbol("...")
_INFINITY = Constant("infinity")


def compare_values(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two values with their units, currencies, degree and percent signs."""
    target_value, target_unit = _measured(target)
    answer_value, answer_unit = _measured(answer)
    if bool(target_unit) != bool(answer_unit):
        if _has_lone_prefix(target_value, answer_value, target_unit or answer_unit):
            return different("structure", "a prefix without its unit")
        target_value = _without_letter(target_value, answer_unit)
        answer_value = _without_letter(answer_value, target_unit)
        if target_value == answer_value == _MICRO:
            return different("structure", "a friction is not a prefix")
    if target_unit == answer_unit:
        return compare_numbers(target_value, answer_value, scope)
    if target_unit and answer_unit and not _same_unit(target_unit, answer_unit):
        return _across_units(target, answer, scope)
    if isinstance(target_value, Based) or isinstance(answer_value, Based):
        return different("structure", "a unit on one side and a base on the other")
    if not (target_unit and answer_unit) and (refused := _refused(target_unit or answer_unit, scope)):
        return refused
    return any_of(
        compare_numbers(expected, said, scope)
        for expected in _readings(target_value, target_unit, scope)
        for said in _readings(answer_value, answer_unit, scope)
    )


def _measured(node: Node) -> tuple[Node, str]:
    return (node.value, node.unit) if isinstance(node, Quantity) else (node, "")


def _without_letter(value: Node, unit: str) -> Node:
    r"""5m and 5 \frac{m}{s}, read as products, if the other side has meters, or meters per second."""
    if not unit or not isinstance(value, Product):
        return value
    *factors, last = value.factors
    while factors:
        if _unit_of_letters(last) == unit:
            return factors[0] if len(factors) == 1 else Product(tuple(factors))
        behind = factors_of(last) if isinstance(last, Product) else (last,)
        last = Product((factors.pop(), *behind))
        if len(last.factors) > _MAX_UNIT_LETTERS:
            break
    return value


def _has_lone_prefix(left: Node, right: Node, unit: str) -> bool:
    r"""Whether both end with a letter that on one side is a prefix or has one: `5 \mu\text{m}`, `3 \text{m}\Omega`."""
    last = _last_factor(left)
    return last == _last_factor(right) and (last == _MICRO or (last == _OHM and unit == "meter"))


def _last_factor(value: Node) -> Node:
    """The letter after a number; a value with another letter as well is returned unchanged."""
    match value:
        case Product((*before, last)) if not any(isinstance(factor, Symbol) for factor in before):
            return last
        case _:
            return value


def _unit_of_letters(node: Node) -> str:
    """The unit that letters and their powers spell, `meter per square second`; empty if they are something else."""
    above: list[str] = []
    below: list[str] = []
    for factor in factors_of(node) if isinstance(node, Product) else (node,):
        base, power = (factor.base, factor.exponent) if isinstance(factor, Power) else (factor, ONE)
        sides = above
        if power == MINUS_ONE and isinstance(base, Power):
            base, power, sides = base.base, base.exponent, below
        name = LETTER_UNITS.get(base.name) if isinstance(base, Symbol) else None
        if name is None or not isinstance(power, Number) or power.value.denominator != 1:
            return ""
        size = int(power.value)
        (sides if size > 0 else below).append(powered(name, abs(size)))
    return " per ".join(filter(None, (" ".join(above), " ".join(below)))) if above else ""


def _same_unit(left: str, right: str) -> bool:
    """Whether two units are equal. Spellings are unified already; only the last word of a counted noun matters."""
    shorter, longer = sorted((left, right), key=len)
    return longer.endswith(" " + shorter) and shorter not in UNITS


def _across_units(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Degrees and percents are numbers, and so are equal to each other by value; no other two units are."""
    pure = ("degree", "percent")
    units = (_measured(target)[1], _measured(answer)[1])
    if all(unit in (*pure, "radian") for unit in units) and "percent" not in units and scope.policy.degrees:
        readings = [_value_of_unit(*_measured(node)) for node in (target, answer)]
        return compare_numbers(readings[0], readings[1], scope)
    return different("structure", f"{units[0]} is not {units[1]}")


def _refused(unit: str, scope: Scope) -> MathOutcome | None:
    """The outcome of a missing unit, by the policy."""
    if unit == "degree":
        allowed = scope.policy.degrees
    elif unit == "percent":
        allowed = True
    else:
        allowed = scope.policy.units_optional
    return None if allowed else different("structure", f"{unit} on one side only")


def _readings(value: Node, unit: str, scope: Scope) -> Iterator[Node]:
    """Readings of a value with a unit if the other side has none."""
    if unit == "percent":
        yield _value_of_unit(value, unit)
        if not scope.policy.percent_lenient:
            return
    elif unit == "degree":
        yield _value_of_unit(value, unit)
    yield value


def _value_of_unit(value: Node, unit: str) -> Node:
    if unit == "percent":
        return Number(value.value / 100, value.decimal) if isinstance(value, Number) else Product((_HUNDREDTH, value))
    if unit == "degree":
        return Product((_DEGREE, value))
    return value


def compare_numbers(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two formulas without units."""
    if isinstance(target, Based) != isinstance(answer, Based):
        outcome = _compare_based(target, answer)
        if outcome is not None:
            return outcome
    try:
        exact_target = rational(target)
    except Undefined:
        return different("rational", "the target has no value")
    try:
        exact_answer = rational(answer)
    except Undefined:
        return different("rational", "the answer has no value")
    if exact_target is not None and exact_answer is not None:
        if exact_target == exact_answer:
            return equal("rational")
        if _rounds(target, answer, scope):
            return equal("rational", "equal when rounded")
        return different("rational")
    if target == answer:
        return equal("structure")
    finding = scope.examine(target, answer)
    if finding.identity is ExpressionRelation.DIFFERENT:
        for renamed in same_family(target, answer, constants=scope.policy.integration_constants):
            if (as_renamed := scope.examine(target, renamed)).identity is ExpressionRelation.EQUAL:
                finding = as_renamed
                break
    if finding.identity is ExpressionRelation.EQUAL:
        return equal("identity", finding.reason)
    if finding.identity is ExpressionRelation.DIFFERENT:
        if _rounds(target, answer, scope):
            return equal("identity", "equal when rounded")
        if _written_out(target, answer) or _written_out(answer, target):
            return unknown("terms with indices on one side only", method="identity")
        if (_LEFT_OUT in nodes_of(target)) != (_LEFT_OUT in nodes_of(answer)):
            return unknown("terms left out on one side only", method="identity")
        return different("identity", finding.reason)
    if order_key(target) == order_key(answer):
        return equal("structure")
    if (apart := compare_by_size(target, answer)) is not None:
        return apart
    if arithmetic(target) != arithmetic(answer) or _infinite_alone(target, answer):
        return different("structure", "of another kind")
    if not arithmetic(target):
        return unknown(finding.reason)
    return unknown(finding.reason, ((target, answer),), method="identity", agrees=finding.agrees)


def _written_out(left: Node, right: Node) -> bool:
    """Whether one is a sum over x_i and the other has a separate x_1: values for the two would be unrelated."""
    over = stems(left)
    return bool(over) and any(
        name.partition("_")[0] in over and name.partition("_")[2].isdigit() for name in free_symbols(right)
    )


def _infinite_alone(target: Node, answer: Node) -> bool:
    """Whether infinity is in one of them only; it does not count as a bound of a sum or the point of a limit."""
    parts, others = nodes_of(target), nodes_of(answer)
    if any(isinstance(part, FunctionCall) and part.function in BINDING for part in (*parts, *others)):
        return False
    return (_INFINITY in parts) != (_INFINITY in others)


def _compare_based(target: Node, answer: Node) -> MathOutcome | None:
    """A base on one side only is accepted: 1011_2 is 1011, as well as its value 11."""
    based, other = (target, answer) if isinstance(target, Based) else (answer, target)
    if not isinstance(based, Based) or not isinstance(other, Number) or not based.digits.isdigit():
        return None
    return equal("rational", "the base is missing on one side") if other.value == int(based.digits) else None


def _rounds(target: Node, answer: Node, scope: Scope) -> bool:
    """Whether a decimal equals the target when both are rounded to so many significant digits of the target."""
    digits = scope.policy.rounding_digits
    said = _decimal(answer) if digits > 0 else None
    if said is None:
        return False
    exact = decimal_value(target, min(digits + _GUARD_DIGITS, MAX_DIGITS))
    if exact is None or exact == 0:
        return False
    return abs(exact - said) <= Fraction(10) ** (_magnitude(abs(exact)) - digits + 1) / 2


def _decimal(node: Node) -> Fraction | None:
    """The value of a decimal, also in scientific notation; None for other spellings."""
    match node:
        case Number(value, True):
            return value
        case Product((Number(_, True), Power(Number(base), Number()))) if base == 10:
            return rational_or_none(node)
        case _:
            return None


def _magnitude(value: Fraction) -> int:
    """The power of ten of its first significant digit."""
    power = len(str(value.numerator)) - len(str(value.denominator))
    return power if value >= Fraction(10) ** power else power - 1


def is_reduced(node: Node) -> bool:
    """Whether no quotient of integers in it can be reduced: 2/4 can, as can 4/2."""
    for part in nodes_of(node):
        if not isinstance(part, Product):
            continue
        above = below = 1
        for factor in factors_of(part):
            match factor:
                case Number(value, False):
                    above *= value.numerator
                case Power(Number(value), Number(exponent)) if exponent == -1:
                    below *= value.numerator
        if below != 1 and math.gcd(above, below) != 1:
            return False
    return True
