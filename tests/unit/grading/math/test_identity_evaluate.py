"""Evaluation with bounds of the error: bounds hold, and what is not known is not said."""

import math
from fractions import Fraction

import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_worker.grading.math.balls import FEW_BITS, Ball, NotReal, agreement, exactly, magnitude
from crucible_worker.grading.math.evaluate import (
    FUNCTIONS,
    MAX_DIGITS,
    MAX_TERMS,
    Evaluation,
    approximate,
    decimal_value,
)
from crucible_worker.grading.math.exact import NoValue, Undefined, Work
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import examine
from crucible_worker.grading.math.tree import (
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

STEPS = 100_000
_ONE_ARGUMENT = sorted(name for name, (arity, _) in FUNCTIONS.items() if arity == 1)

trees = st.recursive(
    st.builds(lambda over, under: Number(Fraction(over, under)), st.integers(-20, 20), st.integers(1, 7))
    | st.sampled_from([Constant("pi"), Constant("e"), Constant("i"), Symbol("x")]),
    lambda inner: (
        st.builds(lambda parts: Sum(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
        | st.builds(lambda parts: Product(tuple(parts)), st.lists(inner, min_size=2, max_size=3))
        | st.builds(
            lambda base, over, under: Power(base, Number(Fraction(over, under))),
            inner,
            st.integers(-4, 4),
            st.integers(1, 4),
        )
        | st.builds(lambda base, exponent: Power(base, exponent), inner, inner)
        | st.builds(lambda name, of: FunctionCall(name, (of,)), st.sampled_from(_ONE_ARGUMENT), inner)
    ),
    max_leaves=7,
)


def value(node: Node, bits: int = FEW_BITS, *, real: bool = False, **values: float) -> Ball:
    """The value in so many bits."""
    points = {name: exactly(number) for name, number in values.items()}
    return Evaluation(Work(STEPS), points, {}, real=real, bits=bits).value(node)


@pytest.mark.long
@rows("bits", [FEW_BITS, 100])
@settings(max_examples=600, deadline=None)
@given(tree=trees, x=st.floats(-5, 5).filter(lambda value: abs(value) > 0.01))
def test_values_lie_within_their_bounds(bits: int, tree: Node, x: float) -> None:
    """The balls of few bits and of more overlap: nothing that is dropped as 0 is lost from the bound."""
    try:
        coarse, fine = value(tree, bits, x=x), value(tree, 300, x=x)
    except (NoValue, Undefined):
        return
    assert (coarse - fine).contains(0)


_huge = st.recursive(
    st.builds(lambda over, under: Number(Fraction(over, under)), st.integers(-(10**900), 10**900), st.integers(1, 9))
    | st.builds(lambda bits: Number(Fraction(1, 2**bits)), st.integers(0, 3_000))
    | st.sampled_from([Constant("pi"), Constant("e"), Constant("i"), Symbol("x")]),
    lambda inner: (
        st.builds(lambda left, right: Sum((left, right)), inner, inner)
        | st.builds(lambda left, right: Product((left, right)), inner, inner)
        | st.builds(lambda base, exponent: Power(base, exponent), inner, inner)
        | st.builds(lambda name, of: FunctionCall(name, (of,)), st.sampled_from(_ONE_ARGUMENT), inner)
    ),
    max_leaves=9,
)


@settings(max_examples=300, deadline=None)
@given(left=_huge, right=_huge)
def test_huge_numbers_break_nothing(left: Node, right: Node) -> None:
    """Whatever numbers stand anywhere, two expressions are compared, and not for long."""
    assert examine(left, right).reason
    assert ends_in_time(lambda: examine(left, right))


@settings(max_examples=300, deadline=None)
@given(tree=trees, x=st.floats(-5, 5).filter(lambda value: abs(value) > 0.01))
def test_digests_of_equal_values_are_equal(tree: Node, x: float) -> None:
    """What stands for a value is the same for the value in more bits, if there is anything that stands for it."""
    evaluations = [Evaluation(Work(STEPS), {"x": exactly(x)}, {}, real=False, bits=bits) for bits in (300, 600)]
    try:
        digests = {each.balls.digest(each.value(tree)) for each in evaluations}
    except (NoValue, Undefined):
        return
    assert len(digests) == 1


@rows(
    "text",
    [r"\sqrt{-1-x^2}", r"\ln(-x^2)", "i", r"\arcsin(2+x^2)", "(-1)^x", r"\max(x,i)", "(-2-x^2)!", r"\gcd(x,2)"],
)
def test_complex_values_are_refused_where_real_ones_are_asked_for(text: str) -> None:
    """Where a part of an expression is not real, neither is the expression, even if the whole would be."""
    with pytest.raises(NotReal):
        value(Power(parse(text), Number(Fraction(2))), real=True, x=0.7)


@rows("text", [r"\frac{1}{\sin\pi}", r"\ln(\sin\pi)", r"\lfloor\sqrt2^2\rfloor"])
def test_few_bits_do_not_guess(text: str) -> None:
    """A denominator that may be 0, a floor that may be either: these are left to more bits."""
    with pytest.raises(NoValue):
        value(parse(text))


def test_many_bits_settle_what_few_leave_open() -> None:
    """What is an integer to two thirds of many bits is one, and what is 0 divides nothing."""
    assert value(parse(r"\lfloor\sqrt2^2\rfloor"), 266) == 2
    with pytest.raises(Undefined):
        value(parse(r"\frac{1}{\sin\pi}"), 266)


@rows(
    "text",
    [
        "(10^{1000})^{100000}",
        r"e^{e^{100}}",
        r"\sin(10^{50})",
        r"\cos(2000i)",
        r"(5000+\pi)!",
        r"2^{\sqrt{10^{40}+1}}",
        "2^{3^{50}}",
        r"(\sqrt2)^{10^{30}}",
    ],
)
@rows("bits", [FEW_BITS, 266, 2_048])
def test_what_would_grow_has_no_value(bits: int, text: str) -> None:
    """Powers, exponentials, angles and factorials are measured before they are computed."""
    with pytest.raises(NoValue, match=r"huge|much"):
        value(parse(text), bits)


@rows(
    ("number", "bits"), [("0", -(1 << 40)), ("1", 1), ("-8", 4), ("10^{400}", 1329), ("10^{-400}", -1328), ("3+9i", 4)]
)
def test_magnitudes_are_those_of_the_larger_part(number: str, bits: int) -> None:
    """The magnitude of 8 is 4, as it needs four bits; doubles bound nothing."""
    assert magnitude(value(parse(number))) == bits


def test_agreement_is_counted_in_bits_that_are_known() -> None:
    """Two roots of 266 bits agree in about as many; of different numbers there is no agreement."""
    left, right = value(parse(r"\sqrt2+\sqrt3"), 266), value(parse(r"\sqrt{5+2\sqrt6}"), 266)
    found = agreement(left, right)
    assert found is not None
    assert 255 < found < 270
    assert agreement(left, right + arb(2) ** -200) is None


def test_sums_are_written_out_to_a_bound() -> None:
    """A sum of `MAX_TERMS` terms has a value, of one more it has none here, and to 2.5 it has none at all."""
    assert value(parse(rf"\sum_{{k=1}}^{{{MAX_TERMS}}}k")) == MAX_TERMS * (MAX_TERMS + 1) // 2
    with pytest.raises(NoValue):
        value(parse(rf"\sum_{{k=0}}^{{{MAX_TERMS}}}k"))
    with pytest.raises(NotReal):
        value(parse(r"\sum_{k=1}^{n}k"), n=2.5)


def test_bound_variables_do_not_leak() -> None:
    """A variable of a sum has its own value inside, and outside that of the symbol of its name."""
    k = Symbol("k")
    total = FunctionCall("sum", (k, Number(Fraction(1)), Number(Fraction(3)), Power(k, k)))
    assert value(Sum((k, total, k)), k=0.5) == 0.5 + 1 + 4 + 27 + 0.5


def test_steps_run_out() -> None:
    """Work is taken from what is left, and nothing is done without."""
    with pytest.raises(NoValue, match="too much"):
        Evaluation(Work(3), {}, {}, real=False, bits=FEW_BITS).value(parse(r"\sqrt2+\sqrt3"))


@rows(
    ("node", "expected"),
    [
        (parse(r"\sqrt2"), math.sqrt(2)),
        (parse(r"\sqrt2^2-2"), 0.0),
        (parse("i^2"), -1.0),
        (parse(r"\sqrt[3]{-27}"), -3.0),
        (Quantity(Number(Fraction(180)), "degree"), math.pi),
        (parse(r"\infty"), math.inf),
        (parse(r"3-2\infty"), -math.inf),
        (parse(r"\infty-\infty"), None),
        (parse(r"0\cdot\infty"), None),
        (parse("x"), None),
        (parse("i"), None),
        (parse(r"\frac10"), None),
        (parse("10^{400}"), None),
        (parse("{9^{9^{9^9}}}"), None),
    ],
)
def test_constants_have_approximate_values(node: Node, expected: float | None) -> None:
    """Real constants and infinities have a float; symbols, complex numbers and what has no value have none."""
    assert approximate(node) == (expected if expected is None else pytest.approx(expected, rel=1e-12))


def test_constants_have_decimal_values() -> None:
    """So many digits as are asked for are right; rational constants are exact."""
    pi = decimal_value(Constant("pi"), 50)
    assert pi is not None
    assert math.floor(pi * 10**49) == 31415926535897932384626433832795028841971693993751
    assert decimal_value(parse(r"\frac13"), 5) == Fraction(1, 3)
    assert decimal_value(parse(r"\sqrt2^2-2"), 10) == 0
    assert decimal_value(parse("x"), 10) is None
    assert decimal_value(parse("i"), 10) is None
    assert decimal_value(parse(r"\frac10"), 10) is None
    assert decimal_value(Constant("e"), MAX_DIGITS) == decimal_value(Constant("e"), MAX_DIGITS + 1)
