"""Comparing sets of real numbers: intervals, unions, and the relations that describe them.

Relations of degree two at most are solved, and so become sets. Other inequalities are compared at points.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from flint import arb

from crucible_worker.grading.base import TOO_LONG
from crucible_worker.grading.math.balls import FEW_BITS, Ball, exactly
from crucible_worker.grading.math.compare_relations import difference
from crucible_worker.grading.math.compare_values import match
from crucible_worker.grading.math.evaluate import Evaluation, approximate
from crucible_worker.grading.math.exact import NoValue, Undefined, Work, rational_or_none
from crucible_worker.grading.math.identity import MathOutcome, Scope, all_of, any_of, different, unknown
from crucible_worker.grading.math.reading import is_longer, negated
from crucible_worker.grading.math.tree import (
    ZERO,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Node,
    Number,
    Power,
    Product,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    arithmetic,
    free_symbols,
    ordered_symbols,
    replaced,
    walk,
)

__all__ = [
    "MAX_BOUNDS",
    "MAX_COEFFICIENT_BITS",
    "MAX_SAMPLES",
    "Combined",
    "Quadratic",
    "RealSet",
    "Stretch",
    "at_points",
    "compare_sets",
    "contains",
    "is_no_union",
    "is_real_set",
    "quadratic",
    "real_set",
    "roots",
    "stretches_of",
    "variables_of",
]

# Polynomials of degree two at most in one variable: their coefficients, and their roots.

MAX_COEFFICIENT_BITS = 512
"""Bits of a numerator or denominator of a coefficient: products of many factors stay cheap."""

Quadratic: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""c, b, a of a x^2 + b x + c."""

_NOTHING = Fraction(0)
_ONE: Quadratic = (Fraction(1), _NOTHING, _NOTHING)


def quadratic(node: Node, name: str) -> Quadratic | None:
    """The coefficients of a formula in a variable; None if they are not rational, or it is not such a polynomial."""
    match node:
        case Symbol(other):
            return (_NOTHING, Fraction(1), _NOTHING) if other == name else None
        case Sum(terms):
            total = (_NOTHING, _NOTHING, _NOTHING)
            for term in terms:
                part = quadratic(term, name)
                if part is None:
                    return None
                total = (total[0] + part[0], total[1] + part[1], total[2] + part[2])
            return _sized(total)
        case Product(factors):
            return _product(factors, name)
        case Power(base, Number(exponent)) if exponent in (1, 2):
            return _product((base,) * int(exponent), name)
        case _:
            value = rational_or_none(node)
            return None if value is None else _sized((value, _NOTHING, _NOTHING))


def _product(factors: tuple[Node, ...], name: str) -> Quadratic | None:
    total: Quadratic | None = _ONE
    for factor in factors:
        part = quadratic(factor, name)
        if part is None or total is None:
            return None
        (c, b, a), (other_c, other_b, other_a) = total, part
        if a * other_b or b * other_a or a * other_a:
            return None
        total = _sized((c * other_c, c * other_b + b * other_c, c * other_a + b * other_b + a * other_c))
    return total


def _sized(coefficients: Quadratic) -> Quadratic | None:
    sizes = (max(value.numerator.bit_length(), value.denominator.bit_length()) for value in coefficients)
    return coefficients if max(sizes) <= MAX_COEFFICIENT_BITS else None


def roots(coefficients: Quadratic) -> tuple[Node, ...]:
    """The roots of a polynomial of degree two, in order: none, a double one, or two."""
    c, b, a = coefficients
    discriminant = (b / (2 * a)) ** 2 - c / a
    if discriminant < 0:
        return ()
    middle = Number(-b / (2 * a))
    if discriminant == 0:
        return (middle,)
    root = Power(Number(discriminant), Number(Fraction(1, 2)))
    exact = rational_or_none(root)
    distance: Node = root if exact is None else Number(exact)
    if isinstance(distance, Number):
        return (Number(middle.value - distance.value), Number(middle.value + distance.value))
    return (Sum((middle, Product((Number(Fraction(-1)), distance)))), Sum((middle, distance)))


# Sets of real numbers by their elements: intervals, points, and the results of relations, unions and differences.
#
# Two sets are equal if each bound, and each gap between neighbouring bounds, is in both or in neither.

INFINITY = Constant("infinity")
_REALS = "\u211d"
_COMPLEX = frozenset("zw")  # letters of complex numbers: |z| = 1 is a circle


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """From a bound to a bound; a point if both are the same closed bound."""

    low: Node
    """Lower bound, or minus infinity."""
    high: Node
    """Upper bound, or infinity."""
    low_closed: bool
    """Whether the lower bound is in it."""
    high_closed: bool
    """Whether the upper bound is in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Combined:
    """A combination of sets."""

    operator: str
    """`union`, `intersection`, `difference`; `list`, parts separated by commas, which are a union if no two overlap."""
    parts: tuple[RealSet, ...]
    """May be empty for a union: the empty set."""


RealSet: TypeAlias = Stretch | Combined
"""A set of real numbers."""

ALL = Stretch(negated(INFINITY), INFINITY, False, False)
_PARTS_OF_REALS: Mapping[str, RealSet] = {
    _REALS: ALL,
    f"{_REALS}+": Stretch(ZERO, INFINITY, False, False),
    f"{_REALS}-": Stretch(negated(INFINITY), ZERO, False, False),
    f"{_REALS}*": Combined("difference", (ALL, Stretch(ZERO, ZERO, True, True))),
}


def variables_of(node: Node) -> frozenset[str]:
    """The variables that a relation or a union of relations is about: x of a < x < b."""
    match node:
        case Relation(operands, ("in",)):
            return free_symbols(operands[0])
        case Relation((low, Symbol(name), high)) if name not in free_symbols(low) | free_symbols(high):
            return frozenset({name})
        case Relation(operands):
            return frozenset().union(*map(free_symbols, operands))
        case SetOperation(_, operands):
            return frozenset().union(*map(variables_of, operands))
        case Collection(_, items) if all(isinstance(item, Relation | SetOperation) for item in items):
            return frozenset().union(*map(variables_of, items))
        case _:
            return frozenset()


def real_set(node: Node, *, pairs: bool) -> RealSet | None:
    """The set of a node; None if it is not a set of real numbers. `pairs`: (a, b) is an open interval."""
    match node:
        case Interval(low, high, low_closed, high_closed):
            return Stretch(low, high, low_closed, high_closed)
        case Collection("tuple", (low, high)) if pairs:
            return Stretch(low, high, False, False)
        case Collection("bracket", (low, high)) if pairs:
            return Stretch(low, high, True, True)
        case Collection("set", items):
            return _combined("union", items, pairs)
        case Collection("list", items):
            return _combined("list", items, pairs)
        case SetOperation(operator, operands):
            return _combined(operator, operands, pairs)
        case Relation():
            return _related(node, pairs)
        case Symbol(name):
            return _PARTS_OF_REALS.get(name)
        case _:
            return Stretch(node, node, True, True) if arithmetic(node) else None


def _combined(operator: str, operands: tuple[Node, ...], pairs: bool) -> RealSet | None:
    parts: list[RealSet] = []
    for operand in operands:
        part = real_set(operand, pairs=pairs)
        if part is None:
            return None
        parts.append(part)
    return Combined(operator, tuple(parts))


def _related(relation: Relation, pairs: bool) -> RealSet | None:
    """The values of the one variable of a relation: of each link of a chain, and then of all of them."""
    operands, operators = relation.operands, relation.operators
    if operators == ("in",):
        return real_set(operands[1], pairs=pairs) if isinstance(operands[0], Symbol) else None
    match relation:
        case Relation((low, Symbol(), high), ("<" | "<=" as above, "<" | "<=" as below)):
            return Stretch(low, high, above == "<=", below == "<=")
        case Relation((high, Symbol(), low), (">" | ">=" as below, ">" | ">=" as above)):
            return Stretch(low, high, above == ">=", below == ">=")
    names = variables_of(relation)
    if len(names) != 1:
        return None
    links: list[RealSet] = []
    for left, operator, right in zip(operands, operators, operands[1:]):
        link = _link(left, operator, right, next(iter(names)))
        if link is None:
            return None
        links.append(link)
    return links[0] if len(links) == 1 else Combined("intersection", tuple(links))


def _link(left: Node, operator: str, right: Node, name: str) -> RealSet | None:
    """The values of a variable for which a linear or quadratic relation holds, or one of an absolute value."""
    match left:
        case FunctionCall("abs", (inner,)) if name not in free_symbols(right):
            return _magnitude(inner, operator, right, name)
    if left == Symbol(name) and name not in free_symbols(right):
        bound, rising = right, True
    elif right == Symbol(name) and name not in free_symbols(left):
        bound, rising = left, False
    else:
        vanishing = difference(left, right)
        solved = _solved(vanishing, name)
        if solved is None:
            curve = quadratic(vanishing, name)
            return None if curve is None else _where(curve, operator)
        bound, rising = solved
    if not rising:
        operator = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
    match operator:
        case "<" | "<=":
            return Stretch(negated(INFINITY), bound, False, operator == "<=")
        case ">" | ">=":
            return Stretch(bound, INFINITY, operator == ">=", False)
        case "=":
            return Stretch(bound, bound, True, True)
        case "!=":
            return Combined("difference", (ALL, Stretch(bound, bound, True, True)))
        case _:
            return None


def _where(curve: Quadratic, operator: str) -> RealSet | None:
    """The values for which a polynomial of degree two is below, above, at or off zero; None if it is constant."""
    if curve[2] == 0:
        return None
    points = tuple(Stretch(root, root, True, True) for root in roots(curve))
    at = Combined("union", points)
    if operator == "=":
        return at
    if operator == "!=":
        return Combined("difference", (ALL, at))
    if operator not in ("<", "<=", ">", ">="):
        return None
    closed = "=" in operator
    between: tuple[RealSet, ...] = points if closed else ()
    if len(points) == 2:
        between = (Stretch(points[0].low, points[1].low, closed, closed),)
    if operator.startswith("<") == (curve[2] > 0):
        return Combined("union", between)
    inside = Combined("union", (Stretch(points[0].low, points[-1].low, not closed, not closed),) if points else ())
    return Combined("difference", (ALL, inside))


def _magnitude(inner: Node, operator: str, bound: Node, name: str) -> RealSet | None:
    """|u| < c is -c < u < c, |u| > c is u < -c or u > c, and |u| = c is u = -c or u = c if c is not below zero."""
    how = {"<": "intersection", "<=": "intersection", ">": "union", ">=": "union", "=": "union"}.get(operator)
    size = approximate(bound) if operator == "=" else None
    if how is None or name in _COMPLEX or (operator == "=" and (size is None or size < 0)):
        return None
    parts = (_link(negated(bound), operator, inner, name), _link(inner, operator, bound, name))
    return Combined(how, tuple(part for part in parts if part is not None)) if None not in parts else None


def _solved(vanishing: Node, name: str) -> tuple[Node, bool] | None:
    """Where a linear formula vanishes, and whether it rises there; None if it is not linear with rational slope."""
    if not arithmetic(vanishing):
        return None
    at = [replaced(vanishing, {name: Number(ZERO.value + point)}) for point in (0, 1, 2, 3)]
    steps = [rational_or_none(difference(after, before)) for before, after in itertools.pairwise(at)]
    if steps[0] is None or steps[0] == 0 or not steps[0] == steps[1] == steps[2]:
        return None
    if _curved(vanishing, name):
        return None
    return Product((Number(-1 / steps[0]), at[0])), steps[0] > 0


def _curved(node: Node, name: str) -> bool:
    """Whether the variable occurs outside of sums and products: a formula with equal steps may still be nonlinear."""
    if name not in free_symbols(node):
        return False
    match node:
        case Symbol():
            return False
        case Sum(terms):
            return any(_curved(term, name) for term in terms)
        case Product(factors):
            holding = [factor for factor in factors if name in free_symbols(factor)]
            return len(holding) != 1 or _curved(holding[0], name)
        case Power():
            return True
        case _:
            return True


def stretches_of(part: RealSet) -> Iterator[Stretch]:
    """All its parts."""
    if isinstance(part, Stretch):
        yield part
    else:
        for inner in part.parts:
            yield from stretches_of(inner)


def is_no_union(part: RealSet, places: Sequence[float], rank: Mapping[Node, float]) -> bool:
    """Whether parts of a list overlap or are empty: x > 1, x < 5 means that both hold."""
    if isinstance(part, Stretch) or part.operator != "list":
        return False
    inside = [[contains(inner, place, rank) for place in places] for inner in part.parts]
    return not all(map(any, inside)) or any(column.count(True) > 1 for column in zip(*inside))


def contains(part: RealSet, place: float, rank: Mapping[Node, float]) -> bool:
    """Whether a place is in it: that of the n-th finite bound is n, that of the gap after it n + 1/2.

    Infinity is a place as well; only sets like [0, infinity] contain it.
    """
    if isinstance(part, Combined):
        match part.operator:
            case "union" | "list":
                return any(contains(inner, place, rank) for inner in part.parts)
            case "intersection":
                return all(contains(inner, place, rank) for inner in part.parts)
            case _:
                first, *rest = part.parts
                return contains(first, place, rank) and not any(contains(inner, place, rank) for inner in rest)
    low, high = rank[part.low], rank[part.high]
    if low >= high:
        return place == low == high and part.low_closed and part.high_closed
    return low < place < high or (place == low and part.low_closed) or (place == high and part.high_closed)


# Inequalities of any form at points: a point that fulfils only one of two conditions shows that they differ.

MAX_SAMPLES = 48
"""Points at which two conditions are tried."""

_MAX_NAMES = 4
_MAX_WRITTEN = 12  # numbers of a pair at which, and between which, points are placed
_MAX_NODES = 200  # of a pair: a point costs as much time as it has nodes
_MAX_STEPS = 1_000  # of evaluation at a point
_CERTAIN = 1e-9  # floats closer to zero than this have no sign

_SMALL = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3", "-3", "10", "-10", "1/3")))
_LOT = random.Random(2_030)
# If all values are equal, formulas often vanish, which distinguishes > from >=.
_ALIKE = tuple((value,) * _MAX_NAMES for value in (*_SMALL[:3], Fraction(1, 2)))
_SPREAD = tuple(tuple(_LOT.choice(_SMALL) for _ in range(_MAX_NAMES)) for _ in range(MAX_SAMPLES - len(_ALIKE)))

_Point: TypeAlias = Mapping[str, Number]
_Quantifier: TypeAlias = Callable[[Sequence[bool]], bool]


def at_points(target: Node, answer: Node, outcome: MathOutcome) -> MathOutcome:
    """The outcome for two conditions of different form: different if a point shows it, otherwise unknown.

    Args:
        target: The target: a relation, several, or a set.
        answer: The answer.
        outcome: The result if they cannot be tried.
    """
    names = tuple(dict.fromkeys((*ordered_symbols(target), *ordered_symbols(answer))))
    about = variables_of(target) | variables_of(answer)
    if not 0 < len(names) <= _MAX_NAMES or len(walk(target)) + len(walk(answer)) > _MAX_NODES:
        return outcome
    variable = next(iter(about)) if len(about) == 1 else ""
    # Relations in a list may be meant to hold together, or each for some values.
    ways = list(itertools.product(_readings(target), _readings(answer)))
    apart: set[tuple[_Quantifier, _Quantifier]] = set()
    tried = False
    trial = _Trial(variable)
    for point in _points(names, target, answer):
        trial.move(point)
        for node, side in ((target, 0), (answer, 1)):
            if trial.overlaps(node):
                apart.update(way for way in ways if way[side] is any)
        for way in ways:
            expected = trial.holds(target, way[0])
            said = trial.holds(answer, way[1])
            tried = tried or (expected is not None and said is not None)
            if None not in (expected, said) and expected != said:
                apart.add(way)
        if len(apart) == len(ways):
            return different("identity", "a number fulfils only one of them")
    if not tried or outcome.kind == "unknown":
        return outcome
    return unknown("relations of another form", method="identity")


def _readings(node: Node) -> tuple[_Quantifier, ...]:
    return (all, any) if isinstance(node, Collection) and node.kind == "list" else (any,)


def _points(names: Sequence[str], target: Node, answer: Node) -> Iterator[_Point]:
    if len(names) > 1:
        for values in (*_ALIKE, *_SPREAD):
            yield {name: Number(value) for name, value in zip(names, values)}
        return
    numbers = {part.value for part in (*walk(target), *walk(answer)) if isinstance(part, Number)}
    written = sorted({sign * value for value in sorted(numbers)[:_MAX_WRITTEN] for sign in (1, -1)})
    between = (low + (high - low) / 3 for low, high in itertools.pairwise(written))
    for value in itertools.islice(dict.fromkeys((*written, *between, *_SMALL)), MAX_SAMPLES):
        yield {names[0]: Number(value)}


class _Trial:
    """Conditions at one point after another: in balls of few bits, which nearly always decide a sign.

    Values that are the same at every point are computed once: differences of two sides, and constants in them.
    """

    def __init__(self, variable: str) -> None:
        self._variable = Symbol(variable) if variable else None
        self._point: _Point = {}
        self._values: Mapping[str, Ball] = {}
        self._constants: dict[int, Ball] = {}
        self._links: dict[int, tuple[Node, ...]] = {}
        self._signs: dict[int, int | None] = {}

    def move(self, point: _Point) -> None:
        """Go to a point."""
        self._point = point
        self._signs = {}
        self._values = {name: exactly(number.value) for name, number in point.items()}

    def holds(self, node: Node, together: _Quantifier) -> bool | None:
        """Whether the point fulfils a condition; None if that is unknown. The node must outlive this."""
        match node:
            case Relation(operands, ("in",)):
                return self.holds(operands[1], any) if isinstance(operands[0], Symbol) else None
            case Relation(operands, operators):
                return self._chain(node, operands, operators)
            case SetOperation("difference", (first, *rest)):
                kept = self.holds(first, any)
                dropped = _decided(any, [self.holds(part, any) for part in rest])
                return None if kept is None or dropped is None else kept and not dropped
            case SetOperation(operator, operands):
                return _decided(any if operator == "union" else all, [self.holds(part, any) for part in operands])
            case Interval(low, high, low_closed, high_closed) if self._variable is not None:
                how = ("<=" if low_closed else "<", "<=" if high_closed else "<")
                return self._chain(node, (low, self._variable, high), how)
            case Collection("list" | "set", items) if all(isinstance(item, Relation) for item in items):
                return _decided(together, [self.holds(item, any) for item in items])
            case _:
                return None

    def overlaps(self, node: Node) -> bool:
        """Whether two relations of a list hold together at the point, which then is not a list of cases."""
        match node:
            case Collection("list", items) if all(isinstance(item, Relation) for item in items):
                return [self.holds(item, any) for item in items].count(True) > 1
            case _:
                return False

    def _chain(self, node: Node, operands: Sequence[Node], operators: Sequence[str]) -> bool | None:
        """Whether each link of a chain of comparisons is true."""
        links = self._links.get(id(node))
        if links is None:
            links = self._links[id(node)] = tuple(itertools.starmap(difference, itertools.pairwise(operands)))
        return _decided(all, [_true(self._sign(link), how) for link, how in zip(links, operators)])

    def _sign(self, vanishing: Node) -> int | None:
        """The sign at the point; None if there is none, or if it is not known."""
        if id(vanishing) not in self._signs:
            self._signs[id(vanishing)] = self._sign_now(vanishing)
        return self._signs[id(vanishing)]

    def _sign_now(self, vanishing: Node) -> int | None:
        try:
            value = Evaluation(Work(_MAX_STEPS), self._values, self._constants, real=False, bits=FEW_BITS).value(
                vanishing
            )
        except Undefined:
            return None
        except NoValue:
            return _exact_sign(replaced(vanishing, self._point))
        if not value.imag.contains(0):
            return None
        if isinstance(value, arb) and abs(value) > _CERTAIN:
            return 1 if value > 0 else -1
        return _exact_sign(replaced(vanishing, self._point))


def _decided(quantifier: _Quantifier, parts: list[bool | None]) -> bool | None:
    known = [part for part in parts if part is not None]
    return quantifier(known) if len(known) == len(parts) else None


def _true(sign: int | None, operator: str) -> bool | None:
    """Whether a relation is true, by the sign of its left side minus its right side."""
    if sign is None:
        return None
    match operator:
        case "<" | "<=":
            return sign < 0 or (operator == "<=" and sign == 0)
        case ">" | ">=":
            return sign > 0 or (operator == ">=" and sign == 0)
        case "=":
            return sign == 0
        case "!=":
            return sign != 0
        case _:
            return None


def _exact_sign(constant: Node) -> int | None:
    exact = rational_or_none(constant)
    if exact is not None:
        return (exact > 0) - (exact < 0)
    value = approximate(constant)
    if value is None or abs(value) < _CERTAIN:
        return None
    return 1 if value > 0 else -1


# Comparing sets.


MAX_BOUNDS = 64
"""Parts of a set that are compared, and bounds of them."""

_CLOSE = 1e-9
_INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})


def is_real_set(node: Node) -> bool:
    """Whether this can only be a set of real numbers: an interval, a union, an inequality, all of them."""
    match node:
        case Interval() | SetOperation() | Symbol("\u211d" | "\u211d+" | "\u211d-" | "\u211d*"):
            return True
        case Relation(_, operators):
            return operators == ("in",) or bool(_INEQUALITIES & {*operators})
        case Collection("list" | "set", items):
            return any(map(is_real_set, items))
        case _:
            return False


def compare_sets(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Compare two sets of real numbers; None if one of them is not such a set."""
    outcome = _compare_as_sets(target, answer, scope)
    if outcome is not None and outcome.kind == "equal":
        return outcome
    together = [_all_hold(target), _all_hold(answer)]
    if together == [target, answer]:
        return outcome
    held = _compare_as_sets(together[0], together[1], scope, held=True)
    found = [one for one in (outcome, held) if one is not None]
    return any_of(found) if found else None


def _all_hold(node: Node) -> Node:
    """A list of inequalities, x > 1, x < 5, may mean that all of them hold, not any."""
    match node:
        case Collection("list", items) if all(isinstance(item, Relation) for item in items):
            return SetOperation("intersection", items)
        case _:
            return node


def _compare_as_sets(target: Node, answer: Node, scope: Scope, *, held: bool = False) -> MathOutcome | None:
    """Compare the sets of two nodes; None if one is not a set. `held`: commas were read as "and"."""
    if any(len(variables_of(node)) > 1 and not isinstance(node, Relation) for node in (target, answer)):
        return _compare_by_item(target, answer, scope)
    pairs = scope.policy.interval_or_pair
    if (beyond := _beyond(target, "parts", _parts(target), _parts(answer))) is not None:
        return beyond
    expected, said = real_set(target, pairs=pairs), real_set(answer, pairs=pairs)
    if expected is None or said is None:
        return None
    names = [variables for variables in (variables_of(target), variables_of(answer)) if variables]
    if len(names) == 2 and names[0] != names[1]:
        return different("structure", "sets of different variables")
    ends = [
        dict.fromkeys(bound for part in stretches_of(side) for bound in (part.low, part.high))
        for side in (expected, said)
    ]
    if (beyond := _beyond(target, "bounds", *map(len, ends))) is not None:
        return beyond
    bounds = list(ends[0] | ends[1])
    if any(map(free_symbols, bounds)):
        return _compare_symbolic(expected, said, scope)
    places = _places(bounds)
    if places is None:
        return _compare_symbolic(expected, said, scope)
    outcome, size = _compare_by_places(expected, said, places, scope)
    if size == "overlapping" or (held and size == "nothing"):
        return None  # no list has this meaning
    if size == "nothing" and "tuple" in (_kind(target), _kind(answer)):
        return different("structure", "a pair, and an interval of nothing")  # (1, 1) is not (1, 1]
    if size and _is_worded(target) and _is_worded(answer):
        return _compare_by_item(target, answer, scope)
    return outcome


def _is_worded(node: Node) -> bool:
    """Whether inequalities were joined by a word: two listed ones never mean that nothing, or everything, is right."""
    return isinstance(node, SetOperation) and all(isinstance(part, Relation) for part in node.operands)


def _kind(node: Node) -> str:
    return node.kind if isinstance(node, Collection) else ""


def _beyond(target: Node, what: str, expected: int, said: int) -> MathOutcome | None:
    """The outcome for two sets, one of which is too large to be compared; None if neither is."""
    if expected <= MAX_BOUNDS < said and not is_longer(target):
        return different(TOO_LONG, f"the answer has more than {MAX_BOUNDS} {what}")
    return unknown(f"more than {MAX_BOUNDS} {what}") if max(expected, said) > MAX_BOUNDS else None


def _parts(node: Node) -> int:
    match node:
        case Collection(_, parts) | SetOperation(_, parts):
            return len(parts)
        case _:
            return 1


def _compare_by_item(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """In x > 1, y > 2 each is about a separate variable, and each bound belongs to its variable."""
    match target, answer:
        case Collection(kind, items), Collection(other, others) if kind == other:
            return match(items, others, scope)
        case SetOperation(operator, operands), SetOperation(other, others) if operator == other != "difference":
            return match(operands, others, scope)
        case _:
            return at_points(target, answer, different("structure", "sets of several variables"))


def _places(bounds: Sequence[Node]) -> dict[Node, float] | None:
    places: dict[Node, float] = {}
    for bound in bounds:
        place = approximate(bound)
        if place is None:
            return None
        places[bound] = place
    return places


def _compare_by_places(
    expected: RealSet, said: RealSet, places: dict[Node, float], scope: Scope
) -> tuple[MathOutcome, Literal["", "nothing", "everything", "overlapping"]]:
    """Whether the same places are in both, and a remark about these places."""
    rank: dict[Node, float] = {bound: place for bound, place in places.items() if math.isinf(place)}
    finite = sorted((bound for bound in places if bound not in rank), key=places.__getitem__)
    count = 0
    outcomes: list[MathOutcome] = []
    for index, bound in enumerate(finite):
        before = finite[index - 1] if index else None
        if before is not None and _close(places[before], places[bound]):
            outcome = scope.compare(before, bound, scope)
            if outcome.kind != "different":
                outcomes.append(outcome)
                rank[bound] = rank[before]
                continue
        rank[bound] = count
        count += 1
    if any(rank[part.low] > rank[part.high] for part in (*stretches_of(expected), *stretches_of(said))):
        return different("structure", "an interval from its end to its start"), ""
    steps = (-math.inf, *(step / 2 - 0.5 for step in range(2 * count + 1)), math.inf)
    if any(is_no_union(side, steps, rank) for side in (expected, said)):
        return different("structure", "sets that overlap"), "overlapping"
    inside = [contains(expected, step, rank) for step in steps]
    size = "everything" if all(inside[1:-1]) else "" if any(inside) else "nothing"
    if inside != [contains(said, step, rank) for step in steps]:
        return different("structure", "other sets"), ""
    return all_of(outcomes), size


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= _CLOSE * max(1.0, abs(left), abs(right))


def _compare_symbolic(expected: RealSet, said: RealSet, scope: Scope) -> MathOutcome:
    """Bound by bound, if bounds have variables and so no order."""
    if isinstance(expected, Stretch) and isinstance(said, Stretch):
        if (expected.low_closed, expected.high_closed) != (said.low_closed, said.high_closed):
            return different("structure", "open and closed bounds")
        return all_of(scope.each((expected.low, expected.high), (said.low, said.high)))
    if isinstance(expected, Stretch) or isinstance(said, Stretch) or _operator(expected) != _operator(said):
        return different("structure", "sets of another form")
    if len(expected.parts) != len(said.parts):
        return different("structure", "sets of another form")
    if expected.operator == "difference":
        return all_of(_compare_symbolic(left, right, scope) for left, right in zip(expected.parts, said.parts))
    forth = (any_of(_compare_symbolic(left, right, scope) for right in said.parts) for left in expected.parts)
    back = (any_of(_compare_symbolic(left, right, scope) for left in expected.parts) for right in said.parts)
    return all_of(itertools.chain(forth, back))


def _operator(part: Combined) -> str:
    return "union" if part.operator == "list" else part.operator
