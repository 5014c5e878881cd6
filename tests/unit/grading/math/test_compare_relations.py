"""Equations and inequalities: the same where one is a multiple of the other, solved, or read from the other end."""

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.compare_relations import exact_part, value_of
from crucible_worker.grading.math.decide import compare
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import Scope
from crucible_worker.grading.math.tree import Node, Number, Product, Relation, Sum, Symbol
from tests.tables import rows

_COEFFICIENTS = st.lists(st.integers(-9, 9), min_size=3, max_size=3).filter(lambda c: c[0] != 0 and c[1] != 0)
_FACTORS = st.fractions(-9, 9, max_denominator=9).filter(bool)
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def _kind(target: Node, answer: Node) -> str:
    return compare(target, answer, Scope(MathPolicy(), compare)).kind


def _linear(coefficients: list[int], factor: Fraction) -> Node:
    a, b, c = (Number(factor * coefficient) for coefficient in coefficients)
    return Sum((Product((a, Symbol("x"))), Product((b, Symbol("y"))), c))


def _relation(coefficients: list[int], factor: Fraction, operator: str) -> Relation:
    if factor < 0:
        operator = _FLIPPED[operator]
    return Relation((_linear(coefficients, factor), Number(Fraction(0))), (operator,))  # type: ignore[arg-type]


@given(_COEFFICIENTS, _FACTORS, st.sampled_from(sorted(_FLIPPED)))
def test_multiple_of_a_relation_says_the_same(coefficients: list[int], factor: Fraction, operator: str) -> None:
    """Both sides may be multiplied by a number; a negative one turns an inequality round."""
    one = Fraction(1)

    assert _kind(_relation(coefficients, one, operator), _relation(coefficients, factor, operator)) == "equal"


@given(_COEFFICIENTS, _FACTORS, st.sampled_from("<>"))
def test_inequality_that_is_not_turned_round_is_another(
    coefficients: list[int], factor: Fraction, operator: str
) -> None:
    """-x < 1 is not x < -1: the direction counts."""
    other = _relation(coefficients, factor, _FLIPPED[operator])

    assert _kind(_relation(coefficients, Fraction(1), operator), other) == "different"


@given(_COEFFICIENTS, _COEFFICIENTS)
def test_lines_that_are_no_multiples_are_different(target: list[int], answer: list[int]) -> None:
    """Two equations of lines are one only if their coefficients are proportional."""
    a, b, c = target
    d, e, f = answer
    assume((a * e, a * f, b * f) != (b * d, c * d, c * e))

    assert _kind(_relation(target, Fraction(1), "="), _relation(answer, Fraction(1), "=")) == "different"


@given(_COEFFICIENTS)
def test_solved_equation_says_the_same(coefficients: list[int]) -> None:
    """An equation solved for one of its variables is the same equation, and not with another constant."""
    a, b, c = (Fraction(coefficient) for coefficient in coefficients)
    solved = Sum((Product((Number(-a / b), Symbol("x"))), Number(-c / b)))
    other = Sum((solved, Number(Fraction(1))))
    line = _relation(coefficients, Fraction(1), "=")

    assert _kind(line, Relation((Symbol("y"), solved), ("=",))) == "equal"
    assert _kind(line, solved) == "equal"
    assert _kind(line, Relation((Symbol("y"), other), ("=",))) == "different"
    assert _kind(line, other) == "different"


@rows(
    ("text", "value"),
    [
        ("x = 5", "5"),
        ("5 = x", "5"),
        ("x = 2 + 3 = 5", "5"),
        ("2 + 3 = 5", "5"),
        ("f(x) = x^2", "x^2"),
        ("|AB| = 3", "3"),
        ("x = y = 4", "4"),
        ("x = 1/3 \\approx 0.33", "1/3"),
        ("x \\approx 3", "3"),
        ("(x, y) = (1, 2)", "(1, 2)"),
        ("7 = 11a + c", None),
        ("2x + z = 1", None),
        ("x = x + 1", None),
        ("x < 5", None),
    ],
)
def test_value_of_an_equation(text: str, value: str | None) -> None:
    """An equation gives a value if all before it are names, or numbers worked out."""
    relation = parse(text)
    assert isinstance(relation, Relation)

    assert value_of(relation) == (None if value is None else parse(value))


def test_exact_part_of_an_approximation() -> None:
    """What is approximated is exact, but for a bare name."""
    approximated = parse("\\frac{\\sqrt{3}}{3} \\approx 0.577")
    assert isinstance(approximated, Relation)

    assert exact_part(approximated) == parse("\\frac{\\sqrt{3}}{3}")
