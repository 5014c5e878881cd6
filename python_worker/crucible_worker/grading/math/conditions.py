"""Inequalities of any form at points: a point that fulfils only one of two conditions shows that they differ."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from flint import arb

from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.balls import FEW_BITS, Ball, exactly
from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.equations import difference
from crucible_worker.grading.math.evaluate import Evaluation
from crucible_worker.grading.math.evaluate_work import NoValue, Work
from crucible_worker.grading.math.exact import Undefined
from crucible_worker.grading.math.outcome import MathOutcome, different, unknown
from crucible_worker.grading.math.real_sets import variables_of
from crucible_worker.grading.math.tree import Collection, Interval, Node, Number, Relation, SetOperation, Symbol
from crucible_worker.grading.math.walk import ordered_symbols, replaced, walk

__all__ = ["MAX_SAMPLES", "at_points"]

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
