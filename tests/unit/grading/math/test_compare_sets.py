"""Sets of real numbers: equal if and only if the same numbers are in them."""

from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.compare_sets import MAX_BOUNDS, compare_sets
from crucible_worker.grading.math.decide import compare
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import MathOutcome, Scope
from crucible_worker.grading.math.tree import Collection, Interval, Node, Number, SetOperation
from tests.tables import rows

_OPERATORS: tuple[Literal["union", "intersection", "difference"], ...] = ("union", "intersection", "difference")
_BOUNDS = st.integers(-3, 3)
# Bounds are integers: every set is told from every other by these places.
_PLACES = [Fraction(place, 2) for place in range(-8, 9)]


def _scope(**options: bool) -> Scope:
    return Scope(MathPolicy(**options), compare)


def _compared(target: str, answer: str, **options: bool) -> MathOutcome | None:
    return compare_sets(parse(target), parse(answer), _scope(**options))


def _number(value: int) -> Number:
    return Number(Fraction(value))


@st.composite
def _sets(draw: st.DrawFn, depth: int = 2) -> Node:
    """Intervals, points, and what unions, intersections and differences make of them."""
    kind = draw(st.sampled_from(["interval", "points", "combined"] if depth else ["interval", "points"]))
    if kind == "interval":
        low, high = sorted((draw(_BOUNDS), draw(_BOUNDS)))
        return Interval(_number(low), _number(high), draw(st.booleans()), draw(st.booleans()))
    if kind == "points":
        return Collection("set", tuple(map(_number, draw(st.lists(_BOUNDS, max_size=3)))))
    operator: Literal["union", "intersection", "difference"] = draw(st.sampled_from(_OPERATORS))
    return SetOperation(operator, (draw(_sets(depth - 1)), draw(_sets(depth - 1))))


def _holds(node: Node, place: Fraction) -> bool:
    """Whether a number is in a set, straight from the definition."""
    match node:
        case Interval(Number(low), Number(high), low_closed, high_closed):
            return (low < place or (low_closed and low == place)) and (place < high or (high_closed and high == place))
        case Collection(_, items):
            return any(isinstance(item, Number) and item.value == place for item in items)
        case SetOperation("union", operands):
            return any(_holds(operand, place) for operand in operands)
        case SetOperation("intersection", operands):
            return all(_holds(operand, place) for operand in operands)
        case SetOperation(_, (first, second)):
            return _holds(first, place) and not _holds(second, place)
        case _:
            raise AssertionError(node)


@given(_sets(), _sets())
def test_sets_are_equal_if_the_same_numbers_are_in_them(target: Node, answer: Node) -> None:
    """However intervals, unions and differences are put together, what counts is what is in them."""
    same = all(_holds(target, place) == _holds(answer, place) for place in _PLACES)

    outcome = compare_sets(target, answer, _scope())

    assert outcome is not None
    assert outcome.kind == ("equal" if same else "different")


@rows(
    ("target", "answer"),
    [
        ("0 < x < 1", "(0, 1)"),
        ("2x + 1 < 5", "x < 2"),
        ("-3x \\le 6", "[-2, \\infty)"),
        ("|x - 1| < 2", "(-1, 3)"),
        ("|x| \\ge 2", "(-\\infty, -2] \\cup [2, \\infty)"),
        ("x < \\sqrt{2}", "(-\\infty, 2^{1/2})"),
        ("x \\ne \\pi", "\\mathbb{R} \\setminus \\{\\pi\\}"),
        ("[0, 1] \\cup [1, \\sqrt{4}]", "[0, 2]"),
        ("(a, b)", "a < t < b"),
    ],
)
def test_relation_is_the_set_it_describes(target: str, answer: str) -> None:
    """A linear inequality, or one of an absolute value, says which numbers are meant, and may be said as a set."""
    for one, other in ((target, answer), (answer, target)):
        outcome = _compared(one, other)
        assert outcome is not None
        assert outcome.kind == "equal"


@rows(
    ("target", "answer"),
    [
        ("x < 1", "y < 1"),
        ("x < 1.4142135623730951", "x < \\sqrt{2}"),
        ("(a, b)", "[a, b]"),
        ("(k\\pi, k\\pi + 1)", "(k\\pi, k\\pi + 2)"),
        ("(3, 1) \\cup (0, 1)", "(0, 1)"),
        ("(5, 2) \\cup (4, 3)", "(1, 0) \\cup (2, 0)"),
    ],
)
def test_sets_of_others_or_with_other_bounds_are_different(target: str, answer: str) -> None:
    """Another variable, a bound that is merely close, open for closed, and high before low are differences."""
    outcome = _compared(target, answer)

    assert outcome is not None
    assert outcome.kind == "different"


def test_pair_is_an_interval_by_policy_only() -> None:
    """(0, 1) is an interval where the policy lets it be one."""
    allowed = _compared("0 < x < 1", "(0, 1)")

    assert allowed is not None
    assert allowed.kind == "equal"
    assert _compared("0 < x < 1", "(0, 1)", interval_or_pair=False) is None


@pytest.mark.parametrize(("count", "kind"), [(MAX_BOUNDS, "equal"), (MAX_BOUNDS + 1, "unknown")])
def test_number_of_bounds_is_limited(count: int, kind: str) -> None:
    """Up to so many bounds of a set are set against those of another, and more of the target's are left undecided."""
    target = Collection("set", tuple(map(_number, range(count))))
    answer = SetOperation("union", (target, Collection("set", (_number(0),))))

    outcome = compare_sets(target, answer, _scope())

    assert outcome is not None
    assert outcome.kind == kind
