"""What the parser makes of notation: trees for each kind of answer, and one tree for every spelling of it."""

from fractions import Fraction
from typing import Literal

from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
)
from tests.tables import rows

X, Y, N, K = map(Symbol, "xynk")
PI, INFINITY, IMAGINARY = Constant("pi"), Constant("infinity"), Constant("i")


def n(value: int | str) -> Number:
    """A number."""
    return Number(Fraction(value))


def over(above: Node, below: Node) -> Node:
    """A fraction."""
    return Product((above, Power(below, n(-1))))


def root(of: Node) -> Node:
    """A square root."""
    return Power(of, n("1/2"))


def several(kind: Literal["list", "tuple", "set", "bracket"], *items: Node) -> Collection:
    """A collection."""
    return Collection(kind, items)


@rows(
    ("text", "expected"),
    [
        (r"\frac{3n+m}{2}", over(Sum((Product((n(3), N)), Symbol("m"))), n(2))),
        (r"\frac12", over(n(1), n(2))),
        (r"\frac1{72}", over(n(1), n(72))),
        (r"\frac10", over(n(1), n(0))),
        (r"\frac{x}y", over(X, Y)),
        (r"\frac\pi2", over(PI, n(2))),
        ("1/2x", Product((n(1), Power(n(2), n(-1)), X))),
        ("1/2006!", over(n(1), FunctionCall("factorial", (n(2006),)))),
        ("1 1/2", Sum((n(1), over(n(1), n(2))))),
        (r"-1\frac12", Product((n(-1), Sum((n(1), over(n(1), n(2))))))),
        (r"2\frac{3}{2}", Product((n(2), over(n(3), n(2))))),
        (r"4\sqrt(2)", Product((n(4), root(n(2))))),
        (r"\sqrt[3]{x}^2", Power(Power(X, n("1/3")), n(2))),
        (r"\sqrt12", root(n(12))),
        ("2^10", Power(n(2), n(10))),
        ("x^2y", Product((Power(X, n(2)), Y))),
        ("2^3^2", Power(n(2), Power(n(3), n(2)))),
        ("-x^2", Product((n(-1), Power(X, n(2))))),
        ("10^-3", Power(n(10), n(-3))),
        ("2^6 3^5", Product((Power(n(2), n(6)), Power(n(3), n(5))))),
        ("3(4)", Product((n(3), n(4)))),
        ("x - y", Sum((X, Product((n(-1), Y))))),
        ("x - 5", Sum((X, n(-5)))),
        ("1.5 x 10^3", Product((Number(Fraction(3, 2), True), Power(n(10), n(3))))),
        (r"2\pi i", Product((n(2), PI, IMAGINARY))),
        ("n!!", FunctionCall("double factorial", (N,))),
        ("C_5^2", FunctionCall("binomial", (n(5), n(2)))),
        (r"\mathrm{C}_{n}^{k}", FunctionCall("binomial", (N, K))),
        ("C_1", Symbol("C_1")),
        ("a+b1", Sum((Symbol("a"), Symbol("b_1")))),
        ("x1 - A2", Sum((Symbol("x_1"), Product((n(-1), Symbol("A_2")))))),
        ("2x2", Product((n(2), n(2)))),
        ("3y1", Product((n(3), Symbol("y_1")))),
        ("1.5x10^3", Product((Number(Fraction(3, 2), True), Power(n(10), n(3))))),
        (r"m\angle A", Symbol("angle A")),
        (r"\binom52", FunctionCall("binomial", (n(5), n(2)))),
        (r"{n \choose k}", FunctionCall("binomial", (N, K))),
        ("|x-1|", FunctionCall("abs", (Sum((X, n(-1))),))),
        ("||x|-1|", FunctionCall("abs", (Sum((FunctionCall("abs", (X,)), n(-1))),))),
        ("2|x|", Product((n(2), FunctionCall("abs", (X,))))),
        (r"\lfloor x \rfloor + \lceil x \rceil", Sum((FunctionCall("floor", (X,)), FunctionCall("ceil", (X,))))),
        (r"\overline{z}", FunctionCall("conjugate", (Symbol("z"),))),
        ("a_{n+1}", Symbol("a_n+1")),
        (r"\vec{v}", Symbol("vec v")),
        (r"x\cdots y", Product((X, Symbol("..."), Y))),
        (r"\emptyset", several("set")),
        (r"\mathbb{R}", Symbol("ℝ")),  # noqa: RUF001 - the name of the set
        (r"3 \pmod 5", FunctionCall("residue", (n(3), n(5)))),
        ("17 mod 5", FunctionCall("mod", (n(17), n(5)))),
        ("1:2:3", FunctionCall("ratio", (n(1), n(2), n(3)))),
    ],
)
def test_arithmetic_is_read_as_written(text: str, expected: Node) -> None:
    """Arithmetic becomes sums, products and powers, in the order in which it was written."""
    assert parse(text) == expected


@rows(
    ("text", "expected"),
    [
        (r"\sin x", FunctionCall("sin", (X,))),
        (r"\sin 2x", FunctionCall("sin", (Product((n(2), X)),))),
        (r"\sin^2 x", Power(FunctionCall("sin", (X,)), n(2))),
        (r"\sin(x)^2", Power(FunctionCall("sin", (X,)), n(2))),
        (r"\sin^{-1} x", FunctionCall("arcsin", (X,))),
        (r"\cos x \sin y", Product((FunctionCall("cos", (X,)), FunctionCall("sin", (Y,))))),
        (r"\log_2 8", FunctionCall("log", (n(8), n(2)))),
        (r"\log x", FunctionCall("log", (X, n(10)))),
        (r"\lg x", FunctionCall("log", (X, n(10)))),
        (r"\ln|x|", FunctionCall("ln", (FunctionCall("abs", (X,)),))),
        (r"\gcd(x, y)", FunctionCall("gcd", (X, Y))),
        ("f(x)", FunctionCall("f", (X,))),
        ("f'(x)", FunctionCall("f'", (X,))),
        (r"f^{\prime}(x)", FunctionCall("f'", (X,))),
        ("f^{-1}(x)", FunctionCall("f^-1", (X,))),
        ("P(x)", FunctionCall("P", (X,))),
        (r"f \circ g", FunctionCall("compose", (Symbol("f"), Symbol("g")))),
        ("f(x, y)", FunctionCall("f", (X, Y))),
        ("a(x+1)", Product((Symbol("a"), Sum((X, n(1)))))),
        (r"\sum_{n=1}^{10} n^2", FunctionCall("sum", (N, n(1), n(10), Power(N, n(2))))),
        (r"\sum_{i=1}^{n} i", FunctionCall("sum", (Symbol("i"), n(1), N, Symbol("i")))),
        (r"\int_0^1 x^2 \, dx", FunctionCall("integral", (X, n(0), n(1), Power(X, n(2))))),
        (r"\lim_{x \to 0} \frac{\sin x}{x}", FunctionCall("limit", (X, n(0), over(FunctionCall("sin", (X,)), X)))),
        (r"\frac{d}{dx} x^2", FunctionCall("derivative", (X, Power(X, n(2))))),
        (r"\frac{dy}{dx}", FunctionCall("slope", (X, Y))),
    ],
)
def test_functions_bind_what_follows(text: str, expected: Node) -> None:
    """A function takes its bracket, or the factors up to a sign or the next function."""
    assert parse(text) == expected


@rows(
    ("text", "expected"),
    [
        ("(1, 2)", several("tuple", n(1), n(2))),
        ("(1,234)", several("tuple", n(1), n(234))),
        ("[1, 2]", several("bracket", n(1), n(2))),
        (r"\{1, 2\}", several("set", n(1), n(2))),
        ("{x - 1, x}", several("set", Sum((X, n(-1))), X)),
        ("1, 2 and 3", several("list", n(1), n(2), n(3))),
        (r"19, 46, \text{ and } 82", several("list", n(19), n(46), n(82))),
        (r"\boxed{2, 3}", several("list", n(2), n(3))),
        ("(0;1)", several("tuple", n(0), n(1))),
        ("((x))", X),
        ("[x]", X),
        ("(x, y]", Interval(X, Y, False, True)),
        ("]0, 1[", Interval(n(0), n(1), False, False)),
        ("[0, 1[", Interval(n(0), n(1), True, False)),
        (r"[6, \infty)", Interval(n(6), INFINITY, True, False)),
        (
            r"(0, 1) \cup [2, 3]",
            SetOperation("union", (Interval(n(0), n(1), False, False), Interval(n(2), n(3), True, True))),
        ),
        (r"(0, 1) - \{5\}", parse(r"(0, 1) \setminus \{5\}")),
        (r"R - {0}", parse(r"\mathbb{R} \setminus \{0\}")),
        (r"(0, 1) - (1, 2)", Sum((several("tuple", n(0), n(1)), Product((n(-1), several("tuple", n(1), n(2))))))),
        (
            r"\{1\} \cup \{2\} \cap \{3\}",
            SetOperation(
                "union",
                (several("set", n(1)), SetOperation("intersection", (several("set", n(2)), several("set", n(3))))),
            ),
        ),
        ("0 < x <= 5", Relation((n(0), X, n(5)), ("<", "<="))),
        (r"x \in (0, 1)", Relation((X, Interval(n(0), n(1), False, False)), ("in",))),
        (r"\{x \mid 0 < x\}", Relation((n(0), X), ("<",))),
        (r"\{x | x < 0 \text{ or } x > 1\}", parse("x < 0 or x > 1")),
        (
            "x < 0 or x > 1",
            SetOperation("union", (Relation((X, n(0)), ("<",)), Relation((X, n(1)), (">",)))),
        ),
        (
            "x > 0 and x < 1",
            SetOperation("intersection", (Relation((X, n(0)), (">",)), Relation((X, n(1)), ("<",)))),
        ),
        (
            "x=5,y=2;x=7,y=2",
            several(
                "list",
                several("list", Relation((X, n(5)), ("=",)), Relation((Y, n(2)), ("=",))),
                several("list", Relation((X, n(7)), ("=",)), Relation((Y, n(2)), ("=",))),
            ),
        ),
        (r"\pm 2", PlusMinus(n(0), n(2))),
        (r"3 \pm \sqrt{2}", PlusMinus(n(3), root(n(2)))),
        (r"\begin{pmatrix} 1 & 2 \\ x & y \end{pmatrix}", Matrix(((n(1), n(2)), (X, Y)))),
        (r"\begin{array}{c} 1 \\ 2 \\ \end{array}", Matrix(((n(1),), (n(2),)))),
        ("[1,2;3,4]", Matrix(((n(1), n(2)), (n(3), n(4))))),
        (r"\begin{vmatrix} x \end{vmatrix}", FunctionCall("det", (Matrix(((X,),)),))),
        (r"\begin{cases} x=1 \\ y=2 \end{cases}", parse("x=1, y=2")),
        (r"\left\{\begin{array}{l} x=1 \\ y=2 \end{array}\right.", parse("x=1, y=2")),
        (r"\begin{aligned} x &= 1 \\ y &= 2 \end{aligned}", parse("x=1, y=2")),
        (r"\begin{aligned} x &= 1 \\ &= y \end{aligned}", parse("x = 1 = y")),
        (r"x = k\pi, k \in \mathbb{Z}", parse(r"x = k\pi")),
        (r"x = k\pi (k \in \mathbf{Z})", parse(r"x = k\pi")),
        (r"x \approx 5", Relation((X, n(5)), ("approx",))),
        (r"\approx 5", n(5)),
        ("x = 1, 2", parse("x = 1, x = 2")),
        (r"x \neq 1, 2", parse("x != 1, x != 2")),
        ("x = 1 or 2", parse("x = 1 or x = 2")),
        ("(B) 12", Relation((Symbol("B"), n(12)), ("=",))),
        ("B. 12", Relation((Symbol("B"), n(12)), ("=",))),
        (r"\max = 3", Relation((Symbol("max"), n(3)), ("=",))),
        ("f(x) = x", Relation((FunctionCall("f", (X,)), X), ("=",))),
        ("P(2) = 5", Relation((FunctionCall("P", (n(2),)), n(5)), ("=",))),
        (r"f(x) = x \text{ for all real } x", parse("f(x) = x")),
        (r"\forall x, f(x) = x", parse("f(x) = x")),
        (r"\forall x > 0, f(x) = x", several("list", parse("x > 0"), parse("f(x) = x"))),
    ],
)
def test_structures_keep_their_brackets_and_order(text: str, expected: Node) -> None:
    """Lists, tuples, sets, intervals, relations and matrices become their nodes, item by item."""
    assert parse(text) == expected


@rows(
    "spellings",
    [
        (
            r"\frac{1}{2}",
            r"\dfrac{1}{2}",
            r"\tfrac12",
            r"\cfrac{1}{2}",
            "1/2",
            "½",
            r"\\frac{1}{2}",
            "\frac{1}{2}",
            "\tfrac12",
        ),
        ("x^2", "x**2", "x²", "x^{2}", "$x^2$", r"\(x^2\)", r"\[ x^2 \].", r"\boxed{x^2}", "x<sup>2</sup>"),
        (r"2\pi", "2π", "2pi", r"2\cdot\pi", "2*pi", r"2 \times \pi"),
        ("x <= 5", r"x \le 5", r"x \leq 5", "x ≤ 5", r"x \leqslant 5", r"x\leq5."),
        (r"\sqrt{2}", "√2", "√(2)", "sqrt(2)", r"\sqrt2", "sqrt 2"),
        (r"(-\infty, 3]", "(\u2212∞, 3]", r"\left(-\infty, 3\right]", r"\big(-\infty, 3\big]", "(-inf, 3]"),
        (r"\{1, 2\}", r"\left\{1, 2\right\}", r"\lbrace 1,\,2 \rbrace"),
        (r"\emptyset", r"\varnothing", r"\{\}", "∅", "no solution", r"\text{No solution.}", "none"),
        (r"x \in \mathbb{R}", r"x \in \R", r"x \in \mathbf{R}", "x ∈ ℝ", r"x \in \mathbb R"),  # noqa: RUF001 - the sign itself is meant
        ("sin(x)", r"\sin(x)", r"\sin x", "sinx", r"\operatorname{sin} x", r"\mathrm{sin}\, x"),
        (r"x \neq 0", r"x \not= 0", "x != 0", "x ≠ 0"),
        (r"\left|\begin{array}{c} 1 \end{array}\right|", r"\begin{vmatrix} 1 \end{vmatrix}"),
        ("C", "(C)", r"\text{C}", r"\text{(C)}", r"\mathrm{C}", r"\textbf{(C)}", "C."),
        (r"a \pm b", "a ± b", "a +/- b"),
        ("x = 1 or x = 2", r"x = 1 \text{ or } x = 2", r"x=1 \lor x=2", r"x=1, \quad x=2", "x=1; x=2"),
    ],
)
def test_spellings_of_one_thing_are_one_tree(spellings: tuple[str, ...]) -> None:
    """Commands, characters and plain text that mean the same give the same tree."""
    first = parse(spellings[0])

    assert {text: parse(text) for text in spellings} == dict.fromkeys(spellings, first)


@rows(
    ("left", "right"),
    [
        ("AB", "BA"),
        ("(1, 2)", "[1, 2]"),
        ("(1, 2]", "[1, 2)"),
        (r"\sqrt{2}x", r"\sqrt{2x}"),
        (r"4\sqrt(2)", "4"),
        ("x_1", "x_2"),
        ("n!!", "(n!)!"),
        ("x < 1 or x > 2", "x < 1 and x > 2"),
        (r"f^{-1}(x)", r"f(x)^{-1}"),
    ],
)
def test_different_things_are_different_trees(left: str, right: str) -> None:
    """What is written differently, and means something else, is not read alike."""
    assert parse(left) != parse(right)


@rows(
    ("text", "digits", "base"),
    [
        ("1011_2", "1011", 2),
        ("1011_{2}", "1011", 2),
        (r"1011_{\text{two}}", "1011", 2),
        (r"1011 \text{ base } 2", "1011", 2),
        ("(1011)_2", "1011", 2),
        ("2A_{16}", "2a", 16),
        (r"\text{4C8}_{16}", "4c8", 16),
        ("0.0011_2", "0.0011", 2),
        ("101_{(2)}", "101", 2),
        ("FF_{16}", "ff", 16),
    ],
)
def test_bases_stay_with_their_digits(text: str, digits: str, base: int) -> None:
    """A numeral with a base keeps its digits, in every spelling of the base."""
    assert parse(text) == Based(digits, base)


def test_a_degree_is_a_unit() -> None:
    """Degrees stay quantities; minutes and seconds are added."""
    assert parse(r"30^\circ") == parse("30°") == parse("30 degrees") == Quantity(n(30), "degree")
    assert parse(r"60^\circ 42'") == Sum((Quantity(n(60), "degree"), Quantity(n(42), "arcminute")))
