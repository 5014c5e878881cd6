"""Comparing numbers, formulas and quantities; and lists, tuples, sets and matrices of them, in bounded time.

Letters that stand for any number, such as a constant of integration, may have other names on the other side.
"""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction

from crucible_worker.grading.math.evaluate import MAX_DIGITS, approximate, decimal_value
from crucible_worker.grading.math.exact import Undefined, rational, rational_or_none
from crucible_worker.grading.math.extras.sizes import DOTS, written_out
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
from crucible_worker.grading.math.operands import stems
from crucible_worker.grading.math.reading import compare_by_size, exact_key, factors_of, order_key
from crucible_worker.grading.math.text import are_judgements
from crucible_worker.grading.math.tokens import LETTER_UNITS, UNITS, powered
from crucible_worker.grading.math.tree import (
    BINDING,
    MINUS_ONE,
    ONE,
    Based,
    Collection,
    Constant,
    FunctionCall,
    Matrix,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    Sum,
    Symbol,
    arithmetic,
    children,
    free_symbols,
    nodes_of,
    ordered_symbols,
    replaced,
)

__all__ = [
    "MAX_CONSTANTS",
    "MAX_UNLIKE",
    "compare_collections",
    "compare_matrices",
    "compare_values",
    "constant_levels",
    "covers",
    "is_reduced",
    "match",
]

# Matching lists without regard to order.
#
# Items with the same text are matched by hashing, then those with the same exact value. Only the rest is compared pair
# by pair. As equality is transitive, the first equal partner is as good as any other.

MAX_UNLIKE = 40
"""Remaining items of a side that are compared pair by pair; with more of them the answer is UNDECIDED."""

_CLOSE = 1e-9
_PLAIN = frozenset({Number, Sum, Product, Power, FunctionCall})


def match(targets: Sequence[Node], answers: Sequence[Node], scope: Scope) -> MathOutcome:
    """Whether each target has its own answer, and no answer is left."""
    if len(targets) != len(answers):
        return different("structure", f"{len(answers)} in place of {len(targets)}")
    targets, answers = _without_common(targets, answers, [*targets], [*answers])
    if targets:
        target_keys, answer_keys = [*map(exact_key, targets)], [*map(exact_key, answers)]
        targets, answers = _without_common(targets, answers, target_keys, answer_keys)
    if len(targets) > MAX_UNLIKE:
        return unknown(f"more than {MAX_UNLIKE} things in any order")
    found: list[MathOutcome] = []
    remaining = list(answers)
    for target in targets:
        index, outcome = _partner(target, remaining, scope)
        if outcome.kind == "different":
            return outcome
        del remaining[index]
        found.append(outcome)
    return all_of(found)


def covers(targets: Sequence[Node], answers: Sequence[Node], scope: Scope) -> MathOutcome:
    """Whether each target has a partner among the answers and each answer one among the targets: repeats count once."""
    targets, answers = _distinct(targets), _distinct(answers)
    rest, others = _without_common(targets, answers, [*targets], [*answers])
    rest, others = _without_common(rest, others, [*map(exact_key, rest)], [*map(exact_key, others)])
    if max(len(rest), len(others)) > MAX_UNLIKE:
        return unknown(f"more than {MAX_UNLIKE} things in any order")
    forth = (_partner(target, answers, scope)[1] for target in rest)
    back = (_partner(answer, targets, scope, reverse=True)[1] for answer in others)
    return all_of(itertools.chain(forth, back))


def _distinct(nodes: Sequence[Node]) -> list[Node]:
    """The items without those that repeat the text or the exact value of an earlier one."""
    distinct: dict[Hashable, Node] = {}
    for node in nodes:
        key = exact_key(node)
        distinct.setdefault(node if key is None else key, node)
    return [*distinct.values()]


def _without_common(
    targets: Sequence[Node], answers: Sequence[Node], target_keys: Sequence[Hashable], answer_keys: Sequence[Hashable]
) -> tuple[list[Node], list[Node]]:
    """The rest after partners with the same key are removed; a key of None has no partner."""
    common = collections.Counter(target_keys) & collections.Counter(answer_keys)
    common.pop(None, None)
    return _unmatched(targets, target_keys, +common), _unmatched(answers, answer_keys, +common)


def _unmatched(nodes: Sequence[Node], keys: Sequence[Hashable], common: collections.Counter[Hashable]) -> list[Node]:
    left: list[Node] = []
    for node, key in zip(nodes, keys):
        if common[key] > 0:
            common[key] -= 1
        else:
            left.append(node)
    return left


def _partner(node: Node, others: Sequence[Node], scope: Scope, *, reverse: bool = False) -> tuple[int, MathOutcome]:
    """The first that is equal, else the first that may be."""
    best: tuple[int, MathOutcome] | None = None
    size = _size(node, scope)
    for index, other in enumerate(others):
        if size is not None and (other_size := _size(other, scope)) is not None and not _close(size, other_size):
            continue
        outcome = scope.compare(other, node, scope) if reverse else scope.compare(node, other, scope)
        if outcome.kind == "equal":
            return index, outcome
        if best is None or (best[1].kind == "different" and outcome.kind == "unknown"):
            best = (index, outcome)
    return best if best is not None else (-1, different("structure", "one has no counterpart"))


def _size(node: Node, scope: Scope) -> float | None:
    """The exact value of a constant, by which most other items can be skipped."""
    if type(node) not in _PLAIN or scope.policy.rounding_digits:
        return None
    if node not in scope.sizes:
        mixed = any(isinstance(part, Quantity | Based) for part in nodes_of(node))
        scope.sizes[node] = None if mixed else approximate(node)
    return scope.sizes[node]


def _close(left: float, right: float) -> bool:
    return left == right or abs(left - right) <= _CLOSE * max(abs(left), abs(right))


# Lists, tuples, sets, and matrices.


def compare_collections(target: Collection, answer: Collection, scope: Scope) -> MathOutcome:
    """Compare several things with several things."""
    if DOTS in target.items or DOTS in answer.items:
        if scope.policy.expand_dots:
            target, answer = written_out(target, answer)
        elif DOTS not in target.items or DOTS not in answer.items:
            return different("structure", "dots on one side only")
    kinds = {target.kind, answer.kind}
    if "tuple" in kinds and "bracket" in kinds and scope.policy.interval_or_pair and len(target.items) == 2:
        return different("structure", "an open interval is not a closed one")
    if kinds == {"list"}:
        return _compare_nested(target, answer, scope) or _compare_lists(target.items, answer.items, scope)
    if "set" in kinds and _has_sets(target) != _has_sets(answer):
        return different("structure", "sets within a set on one side only")
    if "set" in kinds and kinds <= {"set", "list"}:
        return covers(_flat(target), _flat(answer), scope)
    if "set" in kinds:
        if "bracket" in kinds and scope.policy.interval_or_pair and len(target.items) + len(answer.items) == 3:
            return _compare_point(target, answer, scope)
        if scope.policy.tuple_or_set:
            return covers(target.items, answer.items, scope)
        return different("structure", "a tuple is not a set")
    return _compare_in_order(target.items, answer.items, scope)


def _compare_point(target: Collection, answer: Collection, scope: Scope) -> MathOutcome:
    """A closed interval from a number to itself, [3, 3], is the set of that number."""
    bounds, points = sorted((target.items, answer.items), key=len, reverse=True)
    return all_of(scope.each(bounds, points * 2))


def _has_sets(node: Collection) -> bool:
    return any(isinstance(item, Collection) and item.kind == "set" and item.items for item in node.items)


def _compare_nested(target: Collection, answer: Collection, scope: Scope) -> MathOutcome | None:
    """x=1, y=2; x=2, y=1 is a list of two solutions, or of four values; None if no list is within another."""
    nested = [any(_is_list(item) for item in side.items) for side in (target, answer)]
    if not any(nested):
        return None
    as_solutions = _compare_lists(target.items, answer.items, scope)
    if as_solutions.kind == "equal" or all(nested):
        return as_solutions
    return any_of((as_solutions, _compare_lists(_flat(target), _flat(answer), scope)))


def _is_list(node: Node) -> bool:
    return isinstance(node, Collection) and node.kind == "list"


def _flat(node: Node) -> tuple[Node, ...]:
    """The items of a list, and of the lists in it."""
    if not isinstance(node, Collection) or node.kind not in ("list", "set"):
        return (node,)
    return tuple(part for item in node.items for part in (_flat(item) if _is_list(item) else (item,)))


def _compare_lists(targets: tuple[Node, ...], answers: tuple[Node, ...], scope: Scope) -> MathOutcome:
    ordered = scope.policy.ordered_lists or are_judgements((*targets, *answers))
    if ordered or _are_named(targets) != _are_named(answers):
        return _compare_in_order(targets, answers, scope)
    if all(_is_solution(item) for item in (*targets, *answers)):
        return covers(targets, answers, scope)
    return match(targets, answers, scope)


def _are_named(nodes: tuple[Node, ...]) -> bool:
    """Whether each gives the value of a separate variable, so that bare values on the other side are in its order."""
    names = [node.operands[0] for node in nodes if isinstance(node, Relation) and node.operators == ("=",)]
    return len(names) == len(nodes) == len({*names}) > 1 and all(isinstance(name, Symbol) for name in names)


def _is_solution(node: Node) -> bool:
    """A tuple in a list is a solution of several unknowns: a repeated one counts once."""
    if isinstance(node, Relation):
        node = node.operands[-1]
    return isinstance(node, Collection) and node.kind == "tuple"


def _compare_in_order(targets: tuple[Node, ...], answers: tuple[Node, ...], scope: Scope) -> MathOutcome:
    if len(targets) != len(answers):
        return different("structure", f"{len(answers)} in place of {len(targets)}")
    return all_of(scope.each(targets, answers))


def compare_matrices(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two nodes at least one of which is a matrix. A vector may be written as a tuple."""
    rows, others = _rows(target), _rows(answer)
    if rows is None or others is None:
        return different("structure", "a matrix on one side only")
    if not (isinstance(target, Matrix) and isinstance(answer, Matrix)):
        rows, others = _as_row(rows), _as_row(others)
    if [len(row) for row in rows] != [len(row) for row in others]:
        return different("structure", "matrices of different sizes")
    return all_of(outcome for row, other in zip(rows, others) for outcome in scope.each(row, other))


def _rows(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    if isinstance(node, Matrix):
        return node.rows
    if isinstance(node, Collection) and node.kind in ("tuple", "bracket"):
        return (node.items,)
    return None


def _as_row(rows: tuple[tuple[Node, ...], ...]) -> tuple[tuple[Node, ...], ...]:
    """A vector in one row, whichever way it is written."""
    return (tuple(row[0] for row in rows),) if all(len(row) == 1 for row in rows) else rows


# Letters that stand for any number: constants of integration, and the integers of a family of solutions.

MAX_CONSTANTS = 3
"""Constants of one solution that may be permuted."""

_PI = Constant("pi")
# Letters that stand for any integer in the solutions of trigonometric equations.
_INTEGER_LETTERS = frozenset("klmn")
# Names of such constants: one side must use the usual name.
_USUAL = re.compile(r"C(?:_[0-9])?")
_NUMBERED = re.compile(r"[Cc]_[1-9]")
_OTHER = re.compile(r"[CcKkDAB](?:_[0-9])?")
# Names of a function's variable. Sums of only other letters are not antiderivatives.
_VARIABLE = re.compile(r"[r-z]|theta|phi")
_SOLUTIONS = frozenset({"exp", "sin", "cos", "sinh", "cosh", "ln"})


def _same_family(target: Node, answer: Node, *, constants: bool) -> Iterator[Node]:
    """The answer with the target's letters, if they may stand for anything of their kind.

    Such are the integer of a family, a + k pi with any k, l, m or n, and with `constants` those of integration: C or K
    of an antiderivative, C_1 and C_2 or A and B of a solution.
    """
    names, others = free_symbols(target), free_symbols(answer)
    if not (names and others):
        return
    own, others_own = names - others, others - names
    if len(own) == len(others_own) == 1:
        (name,), (other,) = own, others_own
        integers = names | others <= _INTEGER_LETTERS and all(_PI in nodes_of(node) for node in (target, answer))
        if integers or (
            constants and _are_constants(name, other) and _is_added(target, name) and _is_added(answer, other)
        ):
            yield replaced(answer, {other: Symbol(name)})
    if constants:
        yield from _same_solution(target, answer, names, others)


def _same_solution(target: Node, answer: Node, names: frozenset[str], others: frozenset[str]) -> Iterator[Node]:
    """The answer with its constants in place of each of the target's: C_1 and C_2 in either order, or A and B."""
    shared = frozenset(filter(_NUMBERED.fullmatch, names & others))
    own, others_own = names - others | shared, others - names | shared
    if not 1 < len(own) == len(others_own) <= MAX_CONSTANTS:
        return
    if not (all(map(_NUMBERED.fullmatch, own)) or all(map(_NUMBERED.fullmatch, others_own))):
        return
    if not all(map(_OTHER.fullmatch, own | others_own)):
        return
    if not (_is_combination(target, own) and _is_combination(answer, others_own)):
        return
    ordered = tuple(name for name in ordered_symbols(answer) if name in others_own)
    for chosen in itertools.permutations(name for name in ordered_symbols(target) if name in own):
        if chosen != ordered:
            yield replaced(answer, {other: Symbol(name) for other, name in zip(ordered, chosen)})


def constant_levels(target: Relation, answer: Relation) -> Relation | None:
    """The answer with the target's letter, if both say that a formula in x and y is constant: x^2 + y^2 = C."""
    match target, answer:
        case Relation((formula, Symbol(name)), ("=",)), Relation((said, Symbol(other)), ("=",)):
            levels = {"x", "y"} <= free_symbols(formula) & free_symbols(said)
            if levels and _are_constants(name, other) and name not in free_symbols(said):
                return Relation((said, Symbol(name)), ("=",))
    return None


def _are_constants(name: str, other: str) -> bool:
    """Whether one has a usual name of constants, and the other may be one."""
    if {name, other} == {"C", "c"}:
        return True
    return any(_USUAL.fullmatch(one) and _OTHER.fullmatch(two) for one, two in ((name, other), (other, name)))


def _is_added(node: Node, name: str) -> bool:
    """Whether a constant is a term of a formula in some variable, and does not occur elsewhere in it."""
    if not isinstance(node, Sum) or node.terms.count(Symbol(name)) != 1:
        return False
    rest = [term for term in node.terms if term != Symbol(name)]
    names = frozenset[str]().union(*map(free_symbols, rest))
    return name not in names and any(map(_VARIABLE.fullmatch, names))


def _is_combination(node: Node, names: frozenset[str]) -> bool:
    """Whether each constant is a factor of one term, and these are terms of one variable or solutions of equations."""
    parts = nodes_of(node)
    solution = any(
        (isinstance(part, Power) and part.base == Constant("e"))
        or (isinstance(part, FunctionCall) and part.function in _SOLUTIONS)
        for part in parts
    )
    if not solution and len(free_symbols(node) - names) != 1:
        return False
    return all(parts.count(Symbol(name)) == 1 and _is_factor(node, Symbol(name)) for name in names)


def _is_factor(node: Node, constant: Symbol) -> bool:
    """Whether a constant that occurs once is only multiplied and added."""
    while node != constant:
        if not isinstance(node, Sum | Product):
            return False
        node = next(part for part in children(node) if constant in nodes_of(part))
    return True


# Numbers, formulas and quantities.


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
        return _compare_numbers(target_value, answer_value, scope)
    if target_unit and answer_unit and not _same_unit(target_unit, answer_unit):
        return _across_units(target, answer, scope)
    if isinstance(target_value, Based) or isinstance(answer_value, Based):
        return different("structure", "a unit on one side and a base on the other")
    if not (target_unit and answer_unit) and (refused := _refused(target_unit or answer_unit, scope)):
        return refused
    return any_of(
        _compare_numbers(expected, said, scope)
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
        return _compare_numbers(readings[0], readings[1], scope)
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


def _compare_numbers(target: Node, answer: Node, scope: Scope) -> MathOutcome:
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
        for renamed in _same_family(target, answer, constants=scope.policy.integration_constants):
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
