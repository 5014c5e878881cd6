"""The slow path: what sympy proves, what numbers forbid, and what it is not asked."""

import subprocess
import sys

from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.symbolic import prove
from crucible_worker.grading.math.symbolic_form import MAX_EXPONENT, MAX_FACTORIAL, MAX_NODES
from crucible_worker.grading.math.tree import Constant, FunctionCall, Node, Product, Sum, Symbol, Text
from tests.tables import rows

PROVEN = [
    ("x", "x"),
    (r"\sum_{k=1}^{n}k^2", r"\frac{n(n+1)(2n+1)}{6}"),
    (r"\sum_{k=0}^{n}x^k", r"\frac{1-x^{n+1}}{1-x}"),
    (r"\sum_{k=1}^{\infty}\frac{1}{k^2}", r"\frac{\pi^2}{6}"),
    (r"\prod_{k=1}^{n}k", "n!"),
    (r"\int_0^1 x^2\,dx", r"\frac13"),
    (r"\int_0^{\infty}e^{-x^2}\,dx", r"\frac{\sqrt\pi}{2}"),
    (r"\lim_{x\to0}\frac{\sin x}{x}", "1"),
    (r"\lim_{n\to\infty}(1+\frac1n)^n", "e"),
    (r"\lfloor x+1\rfloor", r"\lfloor x\rfloor+1"),
    ("|x^2+1|", "x^2+1"),
    (r"\sqrt[3]{-8}", "-2"),
    (r"\infty", r"\infty"),
]

REFUTED = [
    (r"\sum_{k=1}^{\infty}\frac{1}{k^2}", r"\frac{\pi^2}{7}"),
    (r"\int_0^1 x^2\,dx", r"\frac14"),
    (r"\sqrt{x^2}", "x"),
    (r"\infty", r"-\infty"),
    (r"\frac10", "1"),
    (r"\lim_{x\to0}\frac{\sin x}{x}", "0"),
]

OPEN = [
    # From the left it is -1, from the right 1.
    (r"\lim_{x\to0}\frac{|x|}{x}", "1"),
    (rf"2^{{{MAX_EXPONENT + 1}}}x", "x"),
    (rf"({MAX_FACTORIAL + 1})!", "5"),
    (r"\gcd(x,6)", r"\gcd(6,x)"),
    (r"\{1\}", r"\{1\}"),
    # Beyond the digits that are compared: no numbers prove it.
    (r"\int_0^1 x\,dx", r"\frac12+10^{-30}"),
    (r"\int x\,dx", r"\frac{x^2}{2}"),
]


@rows(("left", "right"), PROVEN)
def test_calculus_is_proven(left: str, right: str) -> None:
    """Sums, integrals, limits, jumps: what points cannot prove."""
    assert prove(parse(left), parse(right)) is True


@rows(("left", "right"), REFUTED)
def test_numbers_have_the_last_word(left: str, right: str) -> None:
    """Values that differ are a refutation, as is the lack of one."""
    assert prove(parse(left), parse(right)) is False


@rows(("left", "right"), OPEN)
def test_what_sympy_does_not_know_or_is_not_asked_is_open(left: str, right: str) -> None:
    """Limits from two sides, huge numbers, divisors of symbols, sets and constants of integration."""
    assert prove(parse(left), parse(right)) is None


def test_derivatives_are_taken() -> None:
    """The derivative of x^3 is 3x^2."""
    assert prove(FunctionCall("derivative", (Symbol("x"), parse("x^3"))), parse("3x^2")) is True
    assert prove(FunctionCall("derivative", (Symbol("x"), parse("x^3"))), parse("3x^3")) is False


def test_conjugates_are_told_apart_by_complex_points() -> None:
    """Where a conjugate occurs, symbols are complex."""
    z = Symbol("z")
    assert prove(FunctionCall("conjugate", (z,)), z) is False
    assert prove(FunctionCall("conjugate", (FunctionCall("conjugate", (z,)),)), z) is True


def test_size_is_bounded() -> None:
    """A tree of more than `MAX_NODES` is not given to sympy."""
    x = Symbol("x")

    def wide(count: int) -> Node:
        return Sum((x,) * count)

    assert prove(wide(MAX_NODES - 5), Product((x, parse(str(MAX_NODES - 5))))) is True
    assert prove(wide(MAX_NODES), Product((x, parse(str(MAX_NODES))))) is None


def test_names_never_reach_sympy() -> None:
    """What a symbol or function is called has no meaning to sympy: it is numbered."""
    hostile = '__import__("os").abort()'
    assert prove(Symbol(hostile), Symbol(hostile)) is True
    assert prove(Symbol("E"), Constant("e")) is False
    assert prove(Symbol("lambda"), Symbol("oo")) is False
    assert prove(Text(hostile), Symbol("x")) is None


def test_sympy_counts_with_integers_that_are_bounded() -> None:
    """Memory that runs out is an error of the proof, and not the end of its process."""
    code = (
        "import crucible_worker.grading.math.symbolic_form;"
        "from sympy.external.gmpy import GROUND_TYPES; print(GROUND_TYPES)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"python\n"


def test_sympy_is_not_imported_before_it_is_needed() -> None:
    """What decides most pairs starts without sympy, which takes half a second to load."""
    code = (
        "import sys; from crucible_worker.grading.math import evaluate, exact, identity, modular, symbolic;"
        "sys.exit(bool({'sympy', 'mpmath'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
