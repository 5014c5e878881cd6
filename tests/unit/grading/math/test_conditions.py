"""Inequalities of any form: solved where they are quadratic, tried at points where they are not."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math.compare_sets import MAX_COEFFICIENT_BITS, at_points, quadratic, roots
from crucible_worker.grading.math.decide import decide
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import different, unknown
from crucible_worker.grading.math.tree import Number, Symbol
from crucible_worker.grading.pool import STUCK_SECONDS
from tests.tables import rows

_SMALL = st.integers(-50, 50)


def test_a_number_that_fulfils_one_of_two_conditions_tells_them_apart() -> None:
    """x^3 < 1 is not x < 2, as 3/2 fulfils one of them alone."""
    outcome = at_points(parse("x^3<1"), parse("x<2"), different())

    assert outcome == different("identity", "a number fulfils only one of them")


def test_conditions_that_no_point_tells_apart_are_not_called_different() -> None:
    """x^3 < 1 is x < 1, which points cannot prove."""
    outcome = at_points(parse("x^3<1"), parse("x<1"), different())

    assert outcome.kind == "unknown"
    assert not outcome.pairs


@pytest.mark.parametrize("outcome", [different("structure", "why"), unknown("why")])
def test_what_cannot_be_tried_stays_what_it_was(outcome: object) -> None:
    """Of a condition that is none of numbers, points say nothing."""
    integers, naturals = parse(r"x\in\mathbb{Z}"), parse(r"x\in\mathbb{N}")

    assert at_points(integers, naturals, outcome) is outcome  # type: ignore[arg-type]


@pytest.mark.parametrize("signs", [(r"\pm", "+"), ("+", r"\pm")])
def test_conditions_are_compared_in_a_small_part_of_a_turn(signs: tuple[str, str]) -> None:
    """Roots that are real at some points only cost a tenth of the processor time of a turn, at most."""
    target, answer = (rf"y = \frac{{3{sign}\sqrt{{16x+9}}}}{{2}}" for sign in signs)
    taken = []
    for _ in range(5):
        started = time.thread_time()
        decision = decide(target, answer, MathPolicy())
        taken.append(time.thread_time() - started)
        assert decision.verdict is Verdict.INCORRECT

    assert min(taken) < STUCK_SECONDS / 10


@rows(
    ("target", "answer", "kind"),
    [
        # At x = y = 1 the two sides differ by 2^-60, which floats cannot see.
        (r"x + y \ge 2 + 2^{-60}", r"x + y \ge 2", "different"),
        (r"\sqrt{x} + y > 1", r"y > 1 - \sqrt{x}", "unknown"),
        (r"\sqrt{x}^2 + y > 0", "x + y > 0", "unknown"),
        # Never real, so there is no point to try them at.
        (r"\sqrt{-x^2-1} + y > 0", "y > 0", "different"),
        (r"(i x)^2 + y < 0", "y < x^2", "unknown"),
        (r"(i x)^2 + y < 0", "y < -x^2", "different"),
        (r"\frac{1}{x} + y > 0", "y > 0", "different"),
        ("10^{400} x + y > 0", "x + y > 0", "different"),
        ("x + y > 0, x - y > 0", "x > |y|", "unknown"),
        ("x + y > 0, x - y > 0", "x > y", "different"),
    ],
)
def test_signs_that_floats_cannot_tell_are_found_exactly(target: str, answer: str, kind: str) -> None:
    """What is zero, too close to zero, complex or beyond floats is worked out in another way, or says nothing."""
    assert at_points(parse(target), parse(answer), different()).kind == kind


@given(_SMALL, _SMALL, _SMALL.filter(bool))
def test_a_quadratic_vanishes_at_its_roots(first: int, second: int, scale: int) -> None:
    """The roots of a (x - r)(x - s) are r and s in order, once where they are one."""
    c, b, a = Fraction(scale * first * second), Fraction(-scale * (first + second)), Fraction(scale)

    assert roots((c, b, a)) == tuple(Number(Fraction(root)) for root in sorted({first, second}))


def test_only_rational_polynomials_of_degree_two_are_quadratic() -> None:
    """Higher degrees, other functions and other letters are left to others."""
    assert quadratic(parse("(x-1)(2x+3)"), "x") == (-3, 1, 2)
    for formula in ("x^3", "x*x*x", "2^x", "a x", r"\sqrt{x}", r"\pi x", "1/x"):
        assert quadratic(parse(formula), "x") is None


def test_coefficients_are_bounded() -> None:
    """A coefficient has at most so many bits."""
    largest = Number(Fraction(2**MAX_COEFFICIENT_BITS - 1))

    assert quadratic(largest, "x") == (largest.value, 0, 0)
    assert quadratic(Number(largest.value + 1), "x") is None
    assert quadratic(Symbol("x"), "x") == (0, 1, 0)
