"""Prime fields: what they prove, what they leave open, and that no arithmetic identity escapes them."""

import subprocess
import sys
from fractions import Fraction

import pytest
from flint import nmod
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.math.exact import NoValue, Undefined, Work
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.modular import MAX_SHIFT, PRIMES, ModularEvaluation, imaginary_unit, rational_root
from crucible_worker.grading.math.tree import Node, Number, Power, Product, Sum, Symbol
from tests.tables import rows

ONE, MINUS_ONE = Number(Fraction(1)), Number(Fraction(-1))

polynomials = st.recursive(
    st.sampled_from([Symbol("x"), Symbol("y"), Symbol("z")])
    | st.builds(lambda over, under: Number(Fraction(over, under)), st.integers(-5, 5), st.integers(1, 4)),
    lambda inner: (
        st.builds(lambda left, right: Sum((left, right)), inner, inner)
        | st.builds(lambda left, right: Product((left, right)), inner, inner)
        | st.builds(lambda base, exponent: Power(base, Number(Fraction(exponent))), inner, st.integers(1, 4))
    ),
    max_leaves=10,
)


def agreement(left: Node, right: Node) -> tuple[set[bool], bool]:
    """Whether the values are the same in each field, and whether anything was opaque."""
    same, opaque = set(), False
    for prime in PRIMES:
        field = ModularEvaluation(prime, Work(10_000))
        same.add(field.value(left) == field.value(right))
        opaque = opaque or field.opaque
    return same, opaque


@given(a=polynomials, b=polynomials, c=polynomials)
def test_laws_of_arithmetic_hold(a: Node, b: Node, c: Node) -> None:
    """a(b + c) = ab + ac, (a + b)^2 = a^2 + 2ab + b^2, and a + 1 is not a."""
    two = Number(Fraction(2))
    assert agreement(Product((a, Sum((b, c)))), Sum((Product((c, a)), Product((a, b))))) == ({True}, False)
    square = Sum((Power(a, two), Product((two, a, b)), Power(b, two)))
    assert agreement(Power(Sum((a, b)), two), square) == ({True}, False)
    assert agreement(Sum((a, ONE)), a) == ({False}, False)


@given(a=polynomials, b=polynomials)
def test_singularities_are_removed(a: Node, b: Node) -> None:
    """ab/b = a, wherever b does not vanish; where it vanishes everywhere, nothing is said to be equal."""
    quotient = Product((a, b, Power(b, MINUS_ONE)))
    try:
        assert agreement(quotient, a) == ({True}, False)
    except Undefined:
        assert agreement(b, Number(Fraction(0))) == ({True}, False)


@rows(
    ("left", "right"),
    [
        ("(2+i)(2-i)", "5"),
        (r"\sqrt{12}+\sqrt{\frac34}", r"\frac52\sqrt3"),
        (r"\frac{1}{\sqrt2+1}", r"\sqrt2-1"),
        (r"\sqrt6", r"\sqrt2\sqrt3"),
        (r"\sqrt{-4}", "2i"),
        (r"\frac{\pi^2-1}{\pi-1}", r"\pi+1"),
        (r"\binom{n}{3}", r"\frac{n(n-1)(n-2)}{6}"),
        (r"\sum_{k=1}^{4}x^k", "x+x^2+x^3+x^4"),
        (r"\prod_{k=0}^{2}(x-k)", "x(x-1)(x-2)"),
    ],
)
def test_algebra_is_decided(left: str, right: str) -> None:
    """i, square roots of rationals, pi and what is written out are no more opaque than numbers."""
    same, opaque = agreement(parse(left), parse(right))
    assert (same, opaque) == ({True}, False)


@rows(
    ("left", "right"),
    [
        (r"\sin^2 u+\cos^2 u", "1"),
        (r"\tan(a-b)", r"-\tan(b-a)"),
        (r"\sec^2 u", r"1+\tan^2 u"),
        ("e^{u+v}", "e^u e^v"),
        ("2^{n+3}", r"8\cdot2^n"),
        ("2^{-n}", r"\frac{1}{2^n}"),
        (r"(n+2)!", "(n+2)(n+1)n!"),
        (r"\binom{n}{k}", r"\binom{n}{n-k}"),
        (r"\log_2 x", r"\frac{\log_3 x}{\log_3 2}"),
        ("|u-v|", "|v-u|"),
        ("f(a+b)", "f(b+a)"),
        ("x^{3/2}", r"x\sqrt{x}"),
    ],
)
def test_laws_without_exceptions_are_known(left: str, right: str) -> None:
    """What is opaque obeys the laws that hold for every argument."""
    same, opaque = agreement(parse(left), parse(right))
    assert (same, opaque) == ({True}, True)


@rows(
    ("left", "right"),
    [(r"\sqrt{x^2}", "x"), (r"\sqrt{x^2}", "|x|"), (r"\ln(x^2)", r"2\ln x"), ("f(x)", "g(x)"), ("e", r"\pi")],
)
def test_laws_with_exceptions_are_not_used(left: str, right: str) -> None:
    """What holds for some arguments only is left to points."""
    assert agreement(parse(left), parse(right)) == ({False}, True)


@rows("text", [r"\frac{1}{x-x}", r"\frac{1}{\sqrt4-2}", "(y-y)^0", r"\frac{1}{i^2+1}"])
def test_division_by_what_vanishes_everywhere_has_no_value(text: str) -> None:
    """A denominator that is zero at a random point is zero."""
    with pytest.raises(Undefined):
        agreement(parse(text), ONE)


@rows("text", [r"\infty", r"\sum_{k=1}^{n}k", rf"\sum_{{k=0}}^{{{MAX_SHIFT}}}k", r"\{1\}"])
def test_what_is_not_written_out_is_left_open(text: str) -> None:
    """Infinity, sums of too many terms and sets have no residue."""
    with pytest.raises(NoValue):
        agreement(parse(text), ONE)


@rows("which", [0, 1])
def test_roots_are_roots(which: int) -> None:
    """The chosen roots are consistent: their squares are right, and the root of a product is the product of roots."""
    prime = PRIMES[which]
    assert imaginary_unit(prime) ** 2 == -1
    assert rational_root(prime, Fraction(4, 9)) == nmod(2, prime) / 3
    two, three, six = (rational_root(prime, Fraction(number)) for number in (2, 3, 6))
    assert two is not None
    assert three is not None
    assert six is not None
    assert two * two == 2
    assert two * three == six
    # A prime above 100 has no root here, its square has.
    assert rational_root(prime, Fraction(101)) is None
    assert rational_root(prime, Fraction(101**2)) == 101
    assert rational_root(prime, Fraction(10_007**2 * 10_009**2 * 6)) == 10_007 * 10_009 * six


def test_primes_are_drawn_anew() -> None:
    """Each worker has primes of its own, so that no text can hold a multiple of them on purpose."""
    code = "from crucible_worker.grading.math.modular import PRIMES; print(*PRIMES)"
    printed = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)]
    drawn = [int(prime) for text in printed for prime in text.split()]

    assert len({*drawn, *PRIMES}) == 6
    assert all(prime.bit_length() == 63 and prime % 8 == 1 for prime in drawn)


def test_no_denominator_is_a_multiple_of_the_prime() -> None:
    """A number that is 0/0 in both fields would equal everything: it is left open."""
    modulus = PRIMES[0] * PRIMES[1]
    everything = Product((Number(Fraction(modulus)), Number(Fraction(1, modulus)), Symbol("x")))
    with pytest.raises(NoValue):
        agreement(everything, Symbol("y"))
