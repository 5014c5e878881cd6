"""Numbers with what is written beside them, and decimals that round."""

import math
from decimal import Decimal
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.compare_values import is_reduced
from crucible_worker.grading.math.decide import compare
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import Scope
from crucible_worker.grading.math.tree import Node, Number
from tests.tables import rows


def _kind(target: Node, answer: Node, policy: MathPolicy) -> str:
    return compare(target, answer, Scope(policy, compare)).kind


@given(st.fractions(max_denominator=10_000), st.integers(1, 8))
def test_decimal_that_rounds_the_target_is_accepted_by_policy(target: Fraction, digits: int) -> None:
    """A decimal of so many significant digits is right, the next but one is not, and without the policy neither is."""
    assume(target != 0)
    quotient = Decimal(target.numerator) / Decimal(target.denominator)
    rounded = Fraction(Decimal(f"{quotient:.{digits - 1}e}"))
    unit = Fraction(10) ** (math.floor(quotient.copy_abs().log10()) - digits + 1)
    policy = MathPolicy(rounding_digits=digits)

    assert _kind(Number(target), Number(rounded, True), policy) == "equal"
    assert _kind(Number(target), Number(rounded + 2 * unit, True), policy) == "different"
    assume(rounded != target)
    assert _kind(Number(target), Number(rounded, True), MathPolicy()) == "different"
    assert _kind(Number(target), Number(rounded), policy) == "different"


@rows(
    ("text", "reduced"),
    [
        ("\\frac{1}{2}", True),
        ("\\frac{2}{4}", False),
        ("\\frac{4}{2}", False),
        ("\\frac{2x}{4}", False),
        ("\\frac{x}{4}", True),
        ("\\frac{0.5}{2}", True),
        ("1\\frac{2}{4}", False),
        ("(1, \\frac{3}{6})", False),
        ("5", True),
    ],
)
def test_reduced_fractions(text: str, reduced: bool) -> None:
    """A fraction is reduced if its integers have no common factor, wherever it stands."""
    assert is_reduced(parse(text)) is reduced


@rows(
    ("target", "answer"),
    [
        ("5 cm", "5 mm"),
        ("5 cm", "5^\\circ"),
        ("5 cm", "5\\%"),
        ("\\$5", "5 cents"),
        ("5 kWh", "5 hours"),
        ("5 square meters", "5 meters"),
        ("5 miles per hour", "5 hours"),
    ],
)
def test_two_different_units_are_refused(target: str, answer: str) -> None:
    """A missing unit is forgiven, another one never."""
    policy = MathPolicy()

    assert _kind(parse(target), parse(answer), policy) == "different"
    assert _kind(parse(answer), parse(target), policy) == "different"
