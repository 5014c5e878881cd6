"""One shape for what can be written in several, and where in a text an answer is."""

from fractions import Fraction

import pytest

from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.reading import MAX_DETERMINANT_SIDE, MAX_MATRIX_SIDE, MAX_SIGNS, spread, tidy
from crucible_worker.grading.math.text import as_list, boxed, choice, last_amount, with_decimal_point
from crucible_worker.grading.math.tree import Collection, FunctionCall, Matrix, Number, Product, Quantity, Sum, Symbol
from crucible_worker.grading.qualification import MAX_JOINED
from tests.tables import rows


def _count(text: str, *, independent: bool) -> int:
    node = spread(parse(text), independent=independent)
    return len(node.items) if isinstance(node, Collection) else 1


@rows(("signs", "values"), [(1, 2), (2, 4), (MAX_SIGNS, 2**MAX_SIGNS), (MAX_SIGNS + 1, 2)])
def test_plus_minus_signs_go_together_or_each_by_itself(signs: int, values: int) -> None:
    """Signs that go together give two values, independent ones twice as many for each, up to a limit."""
    text = "1" + "".join(f" \\pm \\sqrt{{{index + 2}}}" for index in range(signs))

    assert _count(text, independent=False) == 2
    assert _count(text, independent=True) == values


def test_units_are_outside_of_arithmetic() -> None:
    """Half of 6 m is 3 m: the unit belongs to the whole."""
    node = tidy(parse("\\frac{6\\text{ m}}{2}"))

    assert isinstance(node, Quantity)
    assert node.unit == "meter"


def test_matrices_are_multiplied_out_within_bounds() -> None:
    """A product of small matrices is a matrix; what would grow beyond all bounds stays as it is written."""
    small = "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}"
    symbols = "\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}"

    assert isinstance(tidy(parse(small * 2)), Matrix)
    assert not isinstance(tidy(parse(symbols * 30)), Matrix)


@rows(
    ("text", "inner"),
    [
        ("\\boxed{5}", "5"),
        ("first \\boxed{5}, no: \\boxed{6}", "6"),
        ("\\boxed{1} and \\boxed{2}", "1, 2"),
        ("\\boxed{1}, \\boxed{2}, \\boxed{3}", "1, 2, 3"),
        ("\\boxed{x = 1} \\quad \\text{or} \\quad \\boxed{x = 2}", "x = 1 or x = 2"),
        ("$a = \\boxed{1}$ and $b = \\boxed{2}$", "a = 1, b = 2"),
        ("\\boxed{1}. Then \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\fbox{7}", "7"),
        ("\\boxed{5", "5"),
        ("no box", None),
    ],
)
def test_boxes(text: str, inner: str | None) -> None:
    """The last box is the answer, with those before it that make a list with it."""
    assert boxed(text) == inner


def test_number_of_boxes_is_limited() -> None:
    """Of very many boxes the last ones are the answer."""
    inner = boxed("".join(f"\\boxed{{{number}}}" for number in range(2 * MAX_JOINED)))

    assert inner is not None
    assert len(inner.split(", ")) == MAX_JOINED


def test_commas() -> None:
    """A comma that cannot divide thousands may be a decimal comma, and one that does may divide a list."""
    assert with_decimal_point("2,74 m", decimals=1) == "2.74 m"
    assert with_decimal_point("2,740", decimals=1) is None
    assert with_decimal_point("0,740", decimals=1) == "0.740"
    assert with_decimal_point("1,2", decimals=2) is None
    assert with_decimal_point("1,2,3", decimals=1) is None
    assert as_list("70,110") == "70, 110"
    assert as_list("70,11") is None


def test_choices_with_their_text() -> None:
    """The letter of a choice stands in brackets or before a point, and its text behind it."""
    assert choice("(B) 12") == ("B", "12")
    assert choice("B. twelve") == ("B", "twelve")
    assert choice("\\textbf{(B)}\\ 12") == ("B", "12")
    assert choice("(B)") is None
    assert choice("BC = 12") is None
    assert choice("B + 12") is None


def test_last_amount_of_a_text() -> None:
    """The last number is as it is written, with its unit if that is one word."""
    assert last_amount("between 3 and 1,000.5 of them") == "1,000.5"
    assert last_amount("between 3 and 1,000.5 meters") == "1,000.5 meters"
    assert last_amount(r"so 5~\text{ picovolt}") == "5 picovolt"
    assert last_amount("at 5 miles per hour") == "5"
    assert last_amount("none") is None


@pytest.mark.parametrize(("side", "multiplied"), [(MAX_MATRIX_SIDE, True), (MAX_MATRIX_SIDE + 1, False)])
def test_side_of_matrices_that_are_multiplied_is_limited(side: int, multiplied: bool) -> None:
    """Matrices of up to so many rows are multiplied."""
    one = Matrix(tuple(tuple(Number(Fraction(row == column)) for column in range(side)) for row in range(side)))

    assert (tidy(Product((one, one))) == one) is multiplied


@pytest.mark.parametrize(("side", "expanded"), [(MAX_DETERMINANT_SIDE, True), (MAX_DETERMINANT_SIDE + 1, False)])
def test_side_of_determinants_is_limited(side: int, expanded: bool) -> None:
    """Determinants of up to so many rows are written out."""
    node = FunctionCall(
        "det", (Matrix(tuple(tuple(Symbol(f"a_{row}{column}") for column in range(side)) for row in range(side))),)
    )

    assert isinstance(tidy(node), Sum) is expanded


def test_product_of_matrices_that_grows_stays_a_product() -> None:
    """A product with more nodes than are kept is left as it is written."""
    entries = tuple(tuple(Symbol(f"a_{row}{column}") for column in range(10)) for row in range(10))
    matrix = Matrix(entries)

    assert isinstance(tidy(Product((matrix, matrix))), Matrix)
    assert not isinstance(tidy(Product((matrix, matrix, matrix))), Matrix)


def test_compound_quantities_are_sums() -> None:
    """2 hours and 30 minutes are one quantity, 2 hours and 3 hours are two."""
    assert isinstance(tidy(parse("2 hours and 30 minutes")), Sum)
    assert isinstance(tidy(parse("2 hours, 3 hours")), Collection)
