"""Bounds of the parser: no text hangs it, nothing but `Unreadable` escapes, and work grows as the text does."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_worker.grading.math import expressions, lexer, tokens
from crucible_worker.grading.math.grammar import MAX_NODES, MAX_TREE_DEPTH, Unreadable, parse, steps_of, words_of
from crucible_worker.grading.math.lexer import MAX_CHARS
from crucible_worker.grading.math.tree import Node, Number, children
from tests.tables import rows

# Encoder of notation, so that random texts go deep into the grammar.
PIECES = st.sampled_from(
    [
        *tokens.FIXED,
        *tokens.WORD_TOKENS,
        *tokens.UPRIGHT_COMMANDS,
        *map(chr, list(tokens.CHARACTERS)[94:]),
        *sorted(tokens.UNITS)[::4],
        *"{}()[]|$,;.^_ -+=<>/!'%0123456789xyzabcdefiPQ" * 4,
        *(r"\{", r"\}", r"\begin{pmatrix}", r"\end{pmatrix}", r"\begin{cases}", r"\end{cases}", r"\text{", r"\boxed{"),
        *(r"\frac{", r"\sqrt{", "1,000", "10 000", r"0.\overline{3}", "1/2", "dx", "for all", "base", "per", "million"),
        *(
            "th",
            "twenty",
            "five",
            "hundred",
            r"\left.",
            "1e5",
            "\n",
            "\t",
            "\f",
            "\x00",
            "\u202e",
            "\ud800",
            "é",
            "京",
            "①",
            "٣",
            "ǅ",
            "ℵ",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.lists(PIECES, max_size=30).map(" ".join) | st.text(max_size=60)

# Each repeats what some parser reads again and again, or goes down on.
REPEATED = (
    *("x+", "(", "(x)", "{", "{}", "[", "-", "--x", "x^", "x!", "5!", r"\sin ", r"\frac12", r"\frac{1}{", r"\sqrt"),
    *("1 1/2 ", "(1,2),", "1,000,", "111 ", "1,", "a ", r"\text{a} ", "$", r"\$", "a_", "|", "|x|", "x=", "x<", "1:"),
    *(r"\int ", r"\int x dx + ", r"\sum_{n=1}^{2}", r"\lim_{x \to 0}", "5 feet ", "5 red ", "1 mod ", "3(mod 5)"),
    *(
        "for all x, ",
        r"x \in (",
        r"0.\dot3",
        r"\begin{pmatrix}",
        "f(x,",
        "P(x,",
        r"\left",
        "∀",
        "{x|",
        r"\{x|",
        "five ",
    ),
    *("twenty-", "12:30 ", "1a", "0.1(", "1.", r"\overline{", "e+", "²", "ⁿ½", " ", "\t", r"\boxed{", "x'", "1%", "1e"),
    *("v^2_0", "x^*", "1'000", "1.000", "{ }^", "⁻", "₀", "¹\u2044₂", r"\notin ", r"y^{\prime", r"x \in \mathbb{}, "),
    *(r"\frac{\text{m}}{\text{s}}", r"\frac{\text{m}}{", r"/(\text{m}", r"\text{ m/min}", "max at ", "max 3 ", "y(0)"),
)


def _result(text: str) -> Node | None:
    try:
        return parse(text)
    except Unreadable:
        return None


@settings(max_examples=1500)
@given(TEXTS)
def test_only_unreadable_escapes(text: str) -> None:
    """Any text is read or refused; a tree can be pickled, and reading is a function of the text."""
    node = _result(text)

    assert node == _result(text)
    if node is not None:
        assert pickle.loads(pickle.dumps(node)) == node
    words_of(text)


@rows("piece", REPEATED)
def test_work_grows_as_the_text_does(piece: str) -> None:
    """Twice the text is at most twice the work, a little aside, whether it is read or refused."""
    half, whole = (steps_of((piece * MAX_CHARS)[:size]) for size in (1_500, 3_000))

    assert whole <= 2 * half + 16


@settings(max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_work_grows_as_any_text_does(piece: str) -> None:
    """Of any piece of notation, twice as many are at most twice the work, a little aside."""
    half, whole = (steps_of(piece * count) for count in (30, 60))

    assert whole <= 2 * half + 2 * len(piece) + 16


@rows("piece", REPEATED)
def test_repetition_does_not_escape(piece: str) -> None:
    """The longest text of any repeated piece is read or refused."""
    text = (piece * MAX_CHARS)[:MAX_CHARS]

    _result(text)
    assert _result(text + "x") is None


@rows(
    ("opening", "middle", "closing"),
    [
        ("(", "x", ")"),
        (r"\sqrt{", "x", "}"),
        (r"\frac{1}{", "x", "}"),
        (r"\{", "x", r"\}"),
        ("2^{", "x", "}"),
        ("f(", "x", ")"),
    ],
)
def test_depth_is_bounded(opening: str, middle: str, closing: str) -> None:
    """Brackets, groups and functions go `MAX_DEPTH` deep and not one deeper, whichever they are."""

    def nested(depth: int) -> str:
        return opening * depth + middle + closing * depth

    levels = 2 if opening in (r"\sqrt{", r"\frac{1}{", "2^{") else 1
    assert _result(nested(lexer.MAX_DEPTH // levels)) is not None
    assert _result(nested(lexer.MAX_DEPTH // levels + 1)) is None


def test_signs_behind_an_operand_are_bounded() -> None:
    """An operand has at most `MAX_POSTFIXES` signs."""
    assert _result("x" + "%" * expressions.MAX_POSTFIXES) is not None
    assert _result("x" + "%" * (expressions.MAX_POSTFIXES + 1)) is None


def test_trees_are_bounded() -> None:
    """A tree within the budget of tokens is refused where it has too many levels or nodes."""
    steps = 900
    assert _result("1" + "+1" * steps) is not None
    assert _result("1" + " mod 7" * (MAX_TREE_DEPTH + 1)) is None
    assert _result(",".join(["a/b/c"] * ((MAX_NODES - 1) // 8))) is not None
    assert _result(",".join(["a/b/c"] * ((MAX_NODES - 1) // 8 + 1))) is None


@settings(max_examples=300)
@given(TEXTS)
def test_trees_are_shallow(text: str) -> None:
    """No tree is deeper than `MAX_TREE_DEPTH`, so that readers may recurse."""
    node = _result(text)
    level, depth = [node] if node is not None else [], 0
    while level:
        depth += 1
        level = [child for parent in level for child in children(parent)]

    assert depth <= MAX_TREE_DEPTH


def test_children_are_the_parts_in_order() -> None:
    """A node's children are all its parts, those of a matrix row by row; what is of one piece has none."""
    one, two, three = map(parse, "123")
    assert children(parse("[1, 2)")) == (one, two)
    assert children(parse("1 < 2 < 3")) == (one, two, three)
    assert children(parse(r"\begin{pmatrix} 1 & 2 \\ 3 & 1 \end{pmatrix}")) == (one, two, three, one)
    assert children(parse("2^3")) == (two, three)
    assert children(parse("AB")) == children(parse("odd")) == children(one) == ()


def test_integers_take_no_parser() -> None:
    """A plain integer is one step."""
    assert steps_of("-12345") == 1
    assert isinstance(parse("-12345"), Number)
