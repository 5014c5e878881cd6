"""Inequalities of any form: solved where they are quadratic, tried at points where they are not."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.math.conditions import at_points
from crucible_worker.grading.math.outcome import different, unknown
from crucible_worker.grading.math.parse import parse
from crucible_worker.grading.math.polynomials import MAX_COEFFICIENT_BITS, quadratic, roots
from crucible_worker.grading.math.tree import Number, Symbol

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
