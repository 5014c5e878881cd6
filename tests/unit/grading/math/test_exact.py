"""Exact values of constants: right, bounded, and without a value where there is none."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.math.exact import (
    MAX_BITS,
    MAX_MODULUS,
    MAX_ROOT,
    Undefined,
    based_value,
    rational,
    remainder,
)
from crucible_worker.grading.math.tree import (
    Based,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
    Symbol,
)
from tests.tables import rows
from tests.unit.grading.cpu_time import ends_in_time


def number(over: int, under: int = 1) -> Number:
    """A rational number."""
    return Number(Fraction(over, under))


def call(function: str, *arguments: int | Node) -> FunctionCall:
    """A function of numbers or trees."""
    return FunctionCall(function, tuple(number(each) if isinstance(each, int) else each for each in arguments))


def tower(*levels: int) -> Node:
    """Exponents upon exponents: of 10, 10 and 10, it is 10^(10^10)."""
    node: Node = number(levels[-1])
    for level in reversed(levels[:-1]):
        node = Power(number(level), node)
    return node


trees = st.recursive(
    st.builds(number, st.integers(-9, 9), st.integers(1, 9)),
    lambda inner: (
        st.builds(lambda parts: Sum(tuple(parts)), st.lists(inner, min_size=2, max_size=4))
        | st.builds(lambda parts: Product(tuple(parts)), st.lists(inner, min_size=2, max_size=4))
        | st.builds(lambda base, exponent: Power(base, number(exponent)), inner, st.integers(-3, 3))
    ),
    max_leaves=12,
)


def plainly(node: Node) -> Fraction:
    """The value by Python's own fractions."""
    match node:
        case Number():
            return node.value
        case Sum():
            return sum(map(plainly, node.terms), Fraction(0))
        case Product():
            return math.prod(map(plainly, node.factors), start=Fraction(1))
        case Power(base, Number(exponent)):
            value = plainly(base)
            if value == 0 and exponent <= 0:
                raise ZeroDivisionError
            return value ** int(exponent)
        case _:
            raise AssertionError(node)


@given(tree=trees)
def test_arithmetic_is_that_of_fractions(tree: Node) -> None:
    """Sums, products and powers have the value that Python's fractions give, or none where it divides by 0."""
    try:
        expected = plainly(tree)
    except ZeroDivisionError:
        with pytest.raises(Undefined):
            rational(tree)
    else:
        assert rational(tree) == expected


@rows(
    ("node", "value"),
    [
        (Power(number(8), number(2, 3)), Fraction(4)),
        (Power(number(-8), number(1, 3)), Fraction(-2)),
        (Power(number(-8), number(2, 3)), Fraction(4)),
        (Power(number(4, 9), number(-3, 2)), Fraction(27, 8)),
        (Power(Power(number(3), number(999)), number(1, 999)), Fraction(3)),
        (Power(Power(number(7), number(4_000)), number(1, 2)), Fraction(7**2_000)),
        (call("floor", number(-7, 2)), Fraction(-4)),
        (call("ceil", number(-7, 2)), Fraction(-3)),
        (call("abs", number(-7, 2)), Fraction(7, 2)),
        (call("sign", -3), Fraction(-1)),
        (call("factorial", 6), Fraction(720)),
        (call("double factorial", 7), Fraction(105)),
        (call("binomial", 10, 3), Fraction(120)),
        (call("binomial", 3, 10), Fraction(0)),
        (call("gcd", 12, 18, 8), Fraction(2)),
        (call("lcm", 4, 6, 10), Fraction(60)),
        (call("min", 3, number(-1, 2)), Fraction(-1, 2)),
        (call("max", 3, number(-1, 2)), Fraction(3)),
        (call("mod", -7, 3), Fraction(2)),
        (call("mod", number(7, 2), -3), Fraction(-5, 2)),
        (call("log", 8, 4), Fraction(3, 2)),
        (call("log", number(1, 27), 9), Fraction(-3, 2)),
        (call("ln", 1), Fraction(0)),
        (call("ratio", 3, -6), Fraction(-1, 2)),
        (call("im", 5), Fraction(0)),
        (Based("1011", 2), Fraction(11)),
        (Based("0.0011", 2), Fraction(3, 16)),
        (Quantity(number(45), "percent"), Fraction(9, 20)),
    ],
)
def test_functions_of_rationals_are_rational(node: Node, value: Fraction) -> None:
    """Roots that come out even, functions of integers, bases and percents are evaluated."""
    assert rational(node) == value


@rows(
    "node",
    [
        Symbol("x"),
        Constant("pi"),
        Constant("i"),
        Power(number(2), number(1, 2)),
        Power(number(-4), number(1, 2)),
        call("sin", 0),
        call("factorial", number(1, 2)),
        call("log", 3, 2),
        call("log", -8, 2),
        call("f", 1),
        call("gcd", number(1, 2), 3),
        call("factorial"),
        call("binomial", 3),
        Quantity(number(3), "meter"),
    ],
)
def test_what_is_not_rational_has_no_rational_value(node: Node) -> None:
    """Symbols, irrational numbers and functions of something else are left to others."""
    assert rational(node) is None


@rows(
    "node",
    [
        Power(number(0), number(-1)),
        Power(number(0), number(0)),
        Power(number(0), number(-1, 2)),
        Product((number(0), Power(Sum((number(1), number(-1))), number(-2)))),
        call("mod", 3, 0),
        call("ratio", 3, 0),
        call("factorial", -1),
        call("log", 0, 2),
        call("log", 2, 1),
        call("ln", 0),
    ],
)
def test_what_divides_by_zero_has_no_value(node: Node) -> None:
    """1/0 equals nothing, nor does 0^0, a logarithm of 0, a factorial of -1."""
    with pytest.raises(Undefined):
        rational(node)


def test_close_numbers_are_told_apart() -> None:
    """What floats take for 0 is not the same: 1/2006! against 1/2004!, 2^-98 against 2^-99."""
    small, large = (rational(Power(call("factorial", of), number(-1))) for of in (2_006, 2_004))
    assert small is not None
    assert large == small * 2_006 * 2_005
    assert rational(Power(number(2), number(-98))) == 2 * Fraction(1, 2**99)


def test_size_is_bounded_before_it_is_computed() -> None:
    """A numerator of `MAX_BITS` bits is a value; of one more, it is none."""
    assert rational(Power(number(2), number(MAX_BITS - 1))) == 2 ** (MAX_BITS - 1)
    assert rational(Power(number(2), number(MAX_BITS))) is None
    assert rational(Power(number(2), number(1 - MAX_BITS))) == Fraction(1, 2 ** (MAX_BITS - 1))
    assert rational(Power(number(2), number(-MAX_BITS))) is None


def test_degree_of_roots_is_bounded() -> None:
    """An n-th root is taken for n up to `MAX_ROOT`."""
    assert rational(Power(Power(number(2), number(MAX_ROOT)), number(1, MAX_ROOT))) == 2
    assert rational(Power(Power(number(2), number(MAX_ROOT + 1)), number(1, MAX_ROOT + 1))) is None


@rows(
    "node",
    [
        tower(*[10] * 100),
        call("factorial", 10**9),
        call("factorial", 10**4_000),
        call("double factorial", 10**9),
        call("binomial", 10**9, 5 * 10**8),
        call("lcm", *range(1, 3_000)),
        Sum(tuple(Power(Sum((Power(number(2), number(30_000)), number(k))), number(-1)) for k in range(1, 400))),
        Sum(tuple(Power(number(k), number(-1)) for k in range(1, 5_000))),
        Product(tuple(Power(number(k, k + 1), number(900)) for k in range(1, 400))),
        Power(Power(number(3), number(20_000)), number(1, 1_000)),
        call("mod", tower(*[10] * 100), MAX_MODULUS - 1),
        call("log", Power(number(2), number(20_000)), Power(number(2), number(20_000 - 1))),
    ],
)
def test_nothing_takes_long(node: Node) -> None:
    """Whatever is written, an exact value is found or refused within the CPU time of a decision."""
    assert ends_in_time(lambda: rational(node))


@rows("modulus", [1, 2, 7, 10, 12, 97, 1_000, 9_999_991, MAX_MODULUS])
def test_towers_have_remainders(modulus: int) -> None:
    """A power too large to be written has the remainder that repeated squaring finds for its parts."""
    # 3^(3^9) is small enough for Python's own pow to check it.
    node = Power(number(3), Power(number(3), Power(number(3), number(2))))
    assert rational(call("mod", node, modulus)) == pow(3, 3**9, modulus)


def test_remainders_of_known_towers() -> None:
    """10^10^10 is 4 modulo 7; a factorial from the modulus on is 0; sums and products have those of their parts."""
    high = tower(10, 10, 10)
    assert rational(call("mod", high, 7)) == 4
    assert remainder(call("factorial", 10**6), 97, rational) == 0
    assert remainder(Sum((high, high, number(1))), 7, rational) == (4 + 4 + 1) % 7
    assert remainder(Product((high, number(-1))), 7, rational) == 3


def test_remainders_are_refused_where_the_theorem_does_not_hold() -> None:
    """An exponent that may be small or negative, a modulus above the bound, and symbols have no remainder here."""
    cancelling = Sum((tower(10, 10, 10), Product((number(-1), tower(10, 10, 10)))))
    assert remainder(Power(number(2), cancelling), 7, rational) is None
    assert remainder(tower(10, 10, 10), MAX_MODULUS + 1, rational) is None
    assert remainder(tower(10, 10, 10), 0, rational) is None
    assert remainder(Symbol("x"), 7, rational) is None
    assert rational(call("mod", Power(number(1, 2), tower(10, 10)), 7)) is None


def test_numerals_with_a_point_have_a_value() -> None:
    """Digits behind the point of a numeral count in its base."""
    assert based_value(Based("a.8", 16)) == Fraction(21, 2)
    assert based_value(Based(".1", 3)) == Fraction(1, 3)
