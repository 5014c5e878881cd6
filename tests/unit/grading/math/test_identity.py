"""Whether expressions are equal: identities, near misses, what has no value, and what cannot be told."""

import functools

import pytest

from crucible_worker.grading.math import identity
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import MAX_SYMBOLS, ExpressionRelation, examine, identical
from crucible_worker.grading.math.tree import Constant, FunctionCall, Node, Product, Sum, Symbol, Text
from tests.tables import rows
from tests.unit.grading.cpu_time import ends_in_time

EQUAL = [
    # rational functions
    (r"\frac{x^2-1}{x-1}", "x+1"),
    ("(x+y)^5", "x^5+5x^4y+10x^3y^2+10x^2y^3+5xy^4+y^5"),
    (r"\frac{1}{x}+\frac{1}{y}", r"\frac{x+y}{xy}"),
    (r"\frac{3n+m}{2}", r"\frac{3}{2}n+\frac{1}{2}m"),
    ("x-x+1", "1"),
    ("0.1+0.2", "0.3"),
    (r"\frac{1}{1+i}", r"\frac{1-i}{2}"),
    ("(1+i)^8", "16"),
    # constants
    (r"\sqrt{12}", r"2\sqrt{3}"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"\frac{1}{\sqrt{3}-\sqrt{2}}", r"\sqrt{3}+\sqrt{2}"),
    (r"\sqrt{5+2\sqrt{6}}", r"\sqrt{2}+\sqrt{3}"),
    (r"\sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}", "1"),
    (r"\sqrt[3]{\sqrt[3]{2}-1}", r"\sqrt[3]{\frac{1}{9}}-\sqrt[3]{\frac{2}{9}}+\sqrt[3]{\frac{4}{9}}"),
    (r"\sqrt[3]{-8}", "-2"),
    (r"\sqrt{-4}", "2i"),
    (r"\sqrt{-4}\sqrt{-9}", "-6"),
    (r"\sqrt{2}^{\sqrt{2}^2}", "2"),
    (r"\sin\frac{\pi}{6}", r"\frac12"),
    (r"\cos\frac{\pi}{5}", r"\frac{1+\sqrt5}{4}"),
    (r"\cos\frac{\pi}{7}\cos\frac{2\pi}{7}\cos\frac{3\pi}{7}", r"\frac18"),
    (r"\tan\frac{\pi}{8}", r"\sqrt2-1"),
    (r"4\arctan\frac15-\arctan\frac1{239}", r"\frac{\pi}{4}"),
    (r"\arcsin\frac12", r"\frac{\pi}{6}"),
    (r"\arccos(-1)", r"\pi"),
    (r"\log_2 8", "3"),
    (r"\frac{\ln 8}{\ln 2}", "3"),
    (r"\ln 6", r"\ln 2+\ln 3"),
    ("e^{2+3}", "e^2e^3"),
    (r"e^{i\pi}", "-1"),
    ("i^i", r"e^{-\frac{\pi}{2}}"),
    ("|3+4i|", "5"),
    (r"\sin 30^\circ", r"\frac12"),
    (r"10^{200}\sqrt2\sqrt3+1-10^{200}\sqrt6", "1"),
    (r"e^{1000}+\sqrt2\sqrt3", r"e^{1000}+\sqrt6"),
    # functions
    (r"\sin^2 x+\cos^2 x", "1"),
    (r"\sin(2x)", r"2\sin x\cos x"),
    (r"\tan x", r"\frac{\sin x}{\cos x}"),
    (r"\csc x-\cot x", r"\tan\frac{x}{2}"),
    (r"\sin(x+y)", r"\sin x\cos y+\cos x\sin y"),
    (r"\cosh^2 x-\sinh^2 x", "1"),
    (r"\arccos x", r"\frac{\pi}{2}-\arcsin x"),
    (r"\ln\frac{a}{b}", r"\ln a-\ln b"),
    (r"\ln(x^2)", r"2\ln x"),
    (r"\ln|x|", r"\ln x"),
    (r"|x|\ln x", r"x\ln x"),
    (r"\log_2 x", r"\frac{\ln x}{\ln 2}"),
    ("2^{n+1}", r"2\cdot 2^n"),
    ("4^n", "2^{2n}"),
    (r"\sqrt{x^2-2x+1}", "|x-1|"),
    (r"\sqrt{x^2}", "|x|"),
    (r"\sqrt{x}^2", "x"),
    (r"x^{\frac32}", r"x\sqrt{x}"),
    (r"\sqrt[3]{x^3}", "x"),
    (r"\frac{1}{\sqrt{x+1}+\sqrt{x}}", r"\sqrt{x+1}-\sqrt{x}"),
    (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}"),
    ("e^{ix}", r"\cos x+i\sin x"),
    ("|x+iy|", r"\sqrt{x^2+y^2}"),
    (r"i\sqrt{x^2+1}", r"\sqrt{-1-x^2}"),
    # natural numbers
    ("(-1)^{n+1}", "(-1)^{n-1}"),
    ("(-1)^n", r"\cos(n\pi)"),
    (r"\frac{n!}{(n-1)!}", "n"),
    (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    (r"\binom{n}{k}", r"\frac{n!}{k!(n-k)!}"),
    (r"\sum_{k=1}^{10}k^2", "385"),
    (r"\sum_{k=1}^{n}k", r"\frac{n(n+1)}{2}"),
    (r"\prod_{k=1}^{5}k", "120"),
    # functions that are not known, and what is only written alike
    ("f(x+y)", "f(y+x)"),
    ("3-2f(x)", "1+3-2f(x)-1"),
    (r"\int_0^1 x\,dx", r"\int_0^1 x\,dx"),
    (r"2\int_0^1 x\,dx", r"\int_0^1 x\,dx\cdot 2"),
    (r"\infty", r"\infty+1"),
]

DIFFERENT = [
    (r"\pi", r"\frac{355}{113}"),
    (r"\pi", "3.14159265358979323846"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744"),
    ("0.333", r"\frac13"),
    (r"\frac{1}{2006!}", r"\frac{1}{2004!}"),
    ("2^{-98}", "2^{-99}"),
    ("10^{10^{10}}", "10^{10^{10}}+1"),
    (r"\sqrt2+\sqrt3", r"\sqrt{10}"),
    (r"10^{200}\sqrt2\sqrt3+1-10^{200}\sqrt6", "0"),
    (r"e^{1000}+\sqrt2", r"e^{1000}+\sqrt3"),
    (r"\sqrt{2}", "1.41421356237309504880168872420969807856967187537694"),
    (r"\frac{22}{7}", r"\pi"),
    (r"4\sqrt2", "4"),
    (r"\sqrt{x^2}", "x"),
    ("|x|", "x"),
    ("|x-1000|", "1000-x"),
    ("|x^2-1|", "x^2-1"),
    (r"\sqrt{(x-2)^2}", "x-2"),
    (r"\arcsin(\sin x)", "x"),
    (r"\arctan x+\arctan\frac1x", r"\frac{\pi}{2}"),
    (r"\cot x", r"-\tan x"),
    (r"\sin x", r"x-\frac{x^3}{6}"),
    (r"\max(x,3)", "x"),
    (r"\sqrt{x+y}", r"\sqrt{x}+\sqrt{y}"),
    (r"\ln(x+y)", r"\ln x+\ln y"),
    ("x^{0.99999999999999999999}", "x"),
    ("(-1)^n", "(-1)^{n+1}"),
    ("4^n", "2^n"),
    ("n!", "n^2"),
    (r"\sum_{k=1}^{n}k", r"\frac{n(n+2)}{2}"),
    (r"\gcd(x,6)", r"\gcd(x,12)"),
    (r"2\lfloor\frac{x}{2}\rfloor", "x"),
    ("f(x)", "f(2x)"),
    ("f(x)", "g(x)"),
    ("x", "y"),
    ("e^{ix}", r"\cos x-i\sin x"),
    (r"\infty", r"-\infty"),
    (r"\infty", "5"),
    # what hides in something larger
    ("2^{1/2^{1000}}", "1"),
    (r"\cos(10^{-100})", "1"),
    (r"\arctan(10^{100})", r"\frac{\pi}{2}"),
    (r"\sqrt{1+10^{-200}}", "1"),
    (r"(1+10^{-100})\sin x", r"\sin x"),
    (r"(1+10^{-100})\sin(2x)", r"2\sin x\cos x"),
    (r"\sinh(\sinh 6)+x^x", r"\sinh(\sinh 6)+x^{x-1}"),
    (r"x+10^{-100}\sin(2x)", r"x+2\cdot10^{-100}\sin x\cos(2x)"),
]

VALUELESS = [
    r"\frac{1}{0}",
    "0^0",
    r"\frac{1}{x-x}",
    r"\frac{1}{\sqrt4-2}",
    r"\frac{1}{\sqrt2\sqrt2-2}",
    r"\frac{5}{\sqrt{3+2\sqrt2}-1-\sqrt2}",
    r"\tan\frac{\pi}{2}",
    r"\ln 0",
    "(-1)!",
]

UNDECIDED = [
    (r"\lfloor x+1\rfloor", r"\lfloor x\rfloor+1", True),
    (r"|x^2+1|", "x^2+1", True),
    (r"\int_0^1 x\,dx", r"\frac12", False),
    (r"\lim_{x\to0}\frac{\sin x}{x}", "1", False),
    (r"\infty", "x", False),
    (r"\infty-\infty", "0", False),
]


@rows(("left", "right"), EQUAL)
def test_equal_expressions_are_found_equal(left: str, right: str) -> None:
    """Identities hold, whichever side is which."""
    assert identical(parse(left), parse(right)) is ExpressionRelation.EQUAL
    assert identical(parse(right), parse(left)) is ExpressionRelation.EQUAL


@rows(("left", "right"), DIFFERENT)
def test_near_misses_are_found_different(left: str, right: str) -> None:
    """What is not equal is never found equal, however close it comes or for however many points it holds."""
    assert identical(parse(left), parse(right)) is ExpressionRelation.DIFFERENT
    assert identical(parse(right), parse(left)) is ExpressionRelation.DIFFERENT


@rows("text", VALUELESS)
def test_what_has_no_value_equals_nothing(text: str) -> None:
    """1/0 is not 1/0, nor 5."""
    for other in (text, "5", "x"):
        assert identical(parse(text), parse(other)) is ExpressionRelation.DIFFERENT


@rows(("left", "right", "agrees"), UNDECIDED)
def test_what_points_cannot_prove_is_left_open(left: str, right: str, agrees: bool) -> None:
    """Jumps, corners seen from one side, calculus and infinity are left to the slow path, with what numbers said."""
    finding = examine(parse(left), parse(right))
    assert finding.identity is ExpressionRelation.UNKNOWN
    assert finding.agrees is agrees
    assert finding.reason


def test_conjugates_are_tried_off_the_real_axis() -> None:
    """The conjugate of z is not z, though it is so at real points."""
    z = Symbol("z")
    finding = examine(FunctionCall("conjugate", (z,)), z)
    assert (finding.identity, finding.agrees) == (ExpressionRelation.UNKNOWN, True)


@pytest.mark.parametrize("node", [Text("none"), FunctionCall("f", (Text("none"),)), Sum((Text("a"), Symbol("x")))])
def test_what_is_no_arithmetic_is_left_open(node: Node) -> None:
    """Words are not numbers; only where they are written alike, they are equal."""
    assert identical(node, Symbol("x")) is ExpressionRelation.UNKNOWN
    assert identical(node, node) is ExpressionRelation.EQUAL


def test_symbols_are_bounded() -> None:
    """So many symbols as there are values for are compared, one more is not, unless it is arithmetic of polynomials."""

    def hard(count: int) -> Node:
        return Sum(tuple(FunctionCall("sin", (Symbol(f"x_{index}"),)) for index in range(count)))

    def doubled(count: int) -> Node:
        return Product(
            (hard(count), FunctionCall("exp", (FunctionCall("ln", (Sum((Constant("e"), Constant("pi"))),)),)))
        )

    def times(count: int) -> Node:
        return Product((hard(count), Sum((Constant("e"), Constant("pi")))))

    assert identical(doubled(MAX_SYMBOLS), times(MAX_SYMBOLS)) is ExpressionRelation.EQUAL
    assert identical(doubled(MAX_SYMBOLS + 1), times(MAX_SYMBOLS + 1)) is ExpressionRelation.UNKNOWN


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without steps, nothing is known."""
    left, right = parse(r"\sin(2x)"), parse(r"2\sin x\cos x")
    monkeypatch.setattr(identity, "MAX_STEPS", 5)
    assert identical(left, right) is ExpressionRelation.UNKNOWN


HOSTILE = [
    "9^{9^{9^{9}}}",
    "e^{e^{e^{e^{e}}}}",
    r"\sin(10^{300}\pi)",
    "((10^{9})!)!",
    r"\binom{10^{9}}{5\cdot10^{8}}",
    r"\sum_{k=1}^{128}\sum_{n=1}^{128}\sum_{m=1}^{128}\sin(knm)",
    "(" * 12 + "x" + "+1)^{3}" * 12,
    "+".join(rf"\sin(x_{{{index}}}^{{{index}}})" for index in range(1, 40)),
    "+".join(rf"\sqrt{{x+{index}!}}" for index in range(1, 60)),
    "x^{x^{x^{x^{x^{x}}}}}",
    r"(\sqrt2)^{10^{18}}",
    "1.000000001^{1000000000}",
    "".join(rf"\sqrt{{x+{index}+" for index in range(12)) + "1" + "}" * 12,
    "x!!!!",
    r"\ln(" * 12 + "x" + ")" * 12,
]


@rows("text", HOSTILE)
def test_nothing_takes_long(text: str) -> None:
    """Against itself rewritten, and against something else, there is an answer within the CPU time of a decision."""
    node = parse(text)
    rewritten = Sum((Product((Constant("pi"), node)), Product((Sum((parse("1"), parse(r"-\pi"))), node))))
    identical(parse(r"\sqrt2+\sqrt3"), parse(r"\sqrt{5+2\sqrt6}"))  # what is cached is cached by now
    for other in (node, rewritten, Sum((node, Constant("e"))), Symbol("y")):
        assert ends_in_time(functools.partial(examine, node, other))
