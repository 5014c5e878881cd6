"""Comparing sets of real numbers: intervals, unions, and the relations that describe them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

from crucible_worker.grading.base import TOO_LONG
from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.conditions import at_points
from crucible_worker.grading.math.matching import match
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, any_of, different, unknown
from crucible_worker.grading.math.real_sets import (
    Combined,
    RealSet,
    Stretch,
    contains,
    is_no_union,
    real_set,
    stretches_of,
    variables_of,
)
from crucible_worker.grading.math.too_long import is_longer
from crucible_worker.grading.math.tree import Collection, Interval, Node, Relation, SetOperation, Symbol
from crucible_worker.grading.math.walk import free_symbols

__all__ = ["MAX_BOUNDS", "compare_sets", "is_real_set"]

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
