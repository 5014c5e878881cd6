"""Evaluation with bounds of the error: bounds hold, and what is not known is not said."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import libmp

from crucible_worker.grading.math.approximate import MAX_DIGITS, approximate, decimal_value
from crucible_worker.grading.math.evaluate_agreement import exactly
from crucible_worker.grading.math.evaluate_float import FloatEvaluation
from crucible_worker.grading.math.evaluate_functions import FUNCTIONS, MAX_TERMS
from crucible_worker.grading.math.evaluate_precise import EXACT, PreciseBall, PreciseEvaluation
from crucible_worker.grading.math.evaluate_work import NotReal, NoValue, Work
from crucible_worker.grading.math.exact import Undefined
from crucible_worker.grading.math.parse import parse
from crucible_worker.grading.math.tree import Call, Constant, Node, Number, Power, Product, Quantity, Sum, Symbol
from tests.tables import rows

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
        | st.builds(lambda name, of: Call(name, (of,)), st.sampled_from(_ONE_ARGUMENT), inner)
    ),
    max_leaves=7,
)


def in_floats(node: Node, *, real: bool = False, **values: float) -> tuple[float | complex, float]:
    """The float and the bound of its error."""
    return FloatEvaluation(Work(STEPS), {n: (v, 0.0) for n, v in values.items()}, {}, real=real).value(node)


def precisely(node: Node, bits: int, **values: float) -> PreciseBall:
    """The precise value and the bound of its error."""
    points = {name: exactly(value) for name, value in values.items()}
    return PreciseEvaluation(Work(STEPS), points, {}, real=False, bits=bits).value(node)


def parts(ball: PreciseBall) -> list[Fraction]:
    """Real and imaginary part as fractions."""
    return [Fraction(*libmp.to_rational(raw or libmp.fzero)) for raw in ball[:2]]


def distance_within(first: list[Fraction], second: list[Fraction], bound: Fraction) -> bool:
    """Whether two complex numbers are no further apart than that."""
    return sum((a - b) ** 2 for a, b in zip(first, second)) <= bound**2


def radius(error: int) -> Fraction:
    """The bound that an exponent of an error stands for."""
    return Fraction(0) if error == EXACT else Fraction(2) ** max(error, -10_000)


@settings(max_examples=600, deadline=None)
@given(tree=trees, x=st.floats(-5, 5).filter(lambda value: abs(value) > 0.01))
def test_floats_lie_within_their_bounds(tree: Node, x: float) -> None:
    """The true value, as 300 bits give it, is no further from the float than the bound says."""
    try:
        value, error = in_floats(tree, x=x)
        ball = precisely(tree, 300, x=x)
    except (NoValue, Undefined):
        return
    assert distance_within([Fraction(value.real), Fraction(value.imag)], parts(ball), Fraction(error) + radius(ball[2]))


@settings(max_examples=600, deadline=None)
@given(tree=trees, x=st.floats(-5, 5).filter(lambda value: abs(value) > 0.01))
def test_digits_lie_within_their_bounds(tree: Node, x: float) -> None:
    """The value of 100 bits is no further from that of 300 than both bounds say."""
    try:
        coarse, fine = precisely(tree, 100, x=x), precisely(tree, 300, x=x)
    except (NoValue, Undefined):
        return
    assert distance_within(parts(coarse), parts(fine), radius(coarse[2]) + radius(fine[2]))


@rows(
    "text",
    [r"\sqrt{-1-x^2}", r"\ln(-x^2)", "i", r"\arcsin(2+x^2)", "(-1)^x", r"\max(x,i)", "(-2-x^2)!", r"\gcd(x,2)"],
)
def test_complex_values_are_refused_where_real_ones_are_asked_for(text: str) -> None:
    """Where a part of an expression is not real, neither is the expression, even if the whole would be."""
    with pytest.raises(NotReal):
        in_floats(Power(parse(text), Number(Fraction(2))), real=True, x=0.7)


@rows("text", [r"\frac{1}{\sin\pi}", r"\ln(\sin\pi)", r"\lfloor\sqrt2^2\rfloor", "10^{400}"])
def test_floats_do_not_guess(text: str) -> None:
    """A denominator that may be 0, a floor that may be either, overflow: these are left to more digits."""
    with pytest.raises(NoValue):
        in_floats(parse(text))


def test_digits_settle_what_floats_leave_open() -> None:
    """What is an integer to two thirds of the digits is one, and what is 0 divides nothing."""
    assert parts(precisely(parse(r"\lfloor\sqrt2^2\rfloor"), 266)) == [2, 0]
    with pytest.raises(Undefined):
        precisely(parse(r"\frac{1}{\sin\pi}"), 266)


def test_sums_are_written_out_to_a_bound() -> None:
    """A sum of `MAX_TERMS` terms has a value, of one more it has none here, and to 2.5 it has none at all."""
    assert in_floats(parse(rf"\sum_{{k=1}}^{{{MAX_TERMS}}}k")) == (
        MAX_TERMS * (MAX_TERMS + 1) / 2,
        pytest.approx(0, abs=1e-9),
    )
    with pytest.raises(NoValue):
        in_floats(parse(rf"\sum_{{k=0}}^{{{MAX_TERMS}}}k"))
    with pytest.raises(NotReal):
        in_floats(parse(r"\sum_{k=1}^{n}k"), n=2.5)


def test_bound_variables_do_not_leak() -> None:
    """A variable of a sum has its own value inside, and outside that of the symbol of its name."""
    k = Symbol("k")
    total = Call("sum", (k, Number(Fraction(1)), Number(Fraction(3)), Power(k, k)))
    value, _ = in_floats(Sum((k, total, k)), k=0.5)
    assert value == 0.5 + 1 + 4 + 27 + 0.5


def test_steps_run_out() -> None:
    """Work is taken from what is left, and nothing is done without."""
    with pytest.raises(NoValue, match="too much"):
        FloatEvaluation(Work(3), {}, {}, real=False).value(parse(r"\sqrt2+\sqrt3"))


@rows(
    ("node", "value"),
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
def test_constants_have_approximate_values(node: Node, value: float | None) -> None:
    """Real constants and infinities have a float; symbols, complex numbers and what has no value have none."""
    assert approximate(node) == (value if value is None else pytest.approx(value, rel=1e-12))


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
