"""Letters: which runs of them are words, names, functions, units, and which are products."""

import pytest

from crucible_worker.grading.math.lexer import MAX_CHARS, MAX_LETTERS, MAX_TOKENS, Unreadable, tokenize
from tests.tables import rows


def _kinds(text: str) -> str:
    tokens = tokenize(text)
    assert len(tokens.kinds) == len(tokens.values)
    return " ".join(tokens.kinds[:-1])


@rows(
    ("text", "kinds"),
    [
        ("xy", "letter letter"),
        ("abc", "letter letter letter"),
        ("abcd", "letter letter letter letter"),
        ("xyzt", "letter letter letter letter"),
        ("Cx", "letter letter"),
        ("AB", "name"),
        ("even", "word"),
        ("Bob", "word"),
        ("the", "word"),
        (r"\text{ab}", "word"),
        (r"\mathrm{e}", "upright"),
        (r"\text{AB}", "name"),
        ("sin", "function"),
        ("sinx", "function letter"),
        ("xlnx", "letter function letter"),
        ("cost", "word"),
        ("ax+by", "letter letter + letter letter"),
        ("5 sec", "number word"),
        ("5 sec x", "number function letter"),
        ("1orW", "number and letter"),
        ("9.8 m/s", "number upright / letter"),
        ("5 in.", "number word ."),
        ("x in [", "letter relation ["),
        ("pi", "constant"),
        ("and", "and"),
        ("theta", "letter"),
        ("cm", "letter letter"),
        ("5cm", "number word"),
        ("5 cm", "number word"),
        ("x cm", "letter word"),
        ("5m", "number letter"),
        (r"\zzz", "letter"),
        ("x" * MAX_LETTERS, " ".join(["letter"] * MAX_LETTERS)),
        ("x" * (MAX_LETTERS + 1), "word"),
        ("②", "word"),
    ],
)
def test_runs_of_letters_follow_the_rules(text: str, kinds: str) -> None:
    """A run of letters is a word, a name or a product by the rules of the module's docstring."""
    assert _kinds(text) == kinds


@rows(
    ("text", "kinds"),
    [
        ("$5$", "number"),
        ("$5", "currency number"),
        (r"\$5", "currency number"),
        ("5$", "number currency"),
        ("$5 and $x$", "currency number and letter"),
        ("{,}", "{ , }"),
        (r"\text{a}\text{b}", "upright upright"),
        (r"\left( 1 \right.", "( number"),
        (r"\begin{array}{cc}1\end{array}", "begin number end environment"),
        (r"\hspace{1cm} 5", "number"),
        (r"\quadx", "letter"),
        ("1,000", "number"),
        ("45,30,105", "number , number , number"),
        ("100,200,30", "number , number , number"),
        ("(1,000)", "( number , number )"),
        (r"\boxed{5", "box{ number }"),
        (r"\begin{aligned} 1 &= 2 \\ &= 3 \\ 4 \end{aligned}", "number relation number relation number , number"),
    ],
)
def test_markup_means_what_it_shows(text: str, kinds: str) -> None:
    """Delimiters, spaces and sizes vanish; a lone dollar sign is money; a box that was cut off is closed."""
    assert _kinds(text) == kinds


def test_size_is_bounded() -> None:
    """`MAX_CHARS` characters and `MAX_TOKENS` tokens are read, and not one more."""
    tokenize(" " * (MAX_CHARS - 1) + "x")
    tokenize("x+" * (MAX_TOKENS // 2))
    with pytest.raises(Unreadable):
        tokenize(" " * MAX_CHARS + "x")
    with pytest.raises(Unreadable):
        tokenize("x+" * (MAX_TOKENS // 2) + "x")


@rows("text", ["\u202e24", "5\x00", "\ud8005", "\x1b[0m"])
def test_control_characters_are_refused(text: str) -> None:
    """What no reader would see is not read."""
    with pytest.raises(Unreadable):
        tokenize(text)
