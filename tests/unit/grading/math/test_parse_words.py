"""Words: which answers are text, how they are spelled, and which words are mathematics."""

from fractions import Fraction

import pytest

from crucible_worker.grading.math.grammar import Unreadable, parse, words_of
from crucible_worker.grading.math.tree import Collection, Number, Quantity, Relation, Symbol, Text
from tests.tables import rows


@rows(
    ("text", "words"),
    [
        (r"\text{Evelyn}", "evelyn"),
        (r"\mbox{Saturday}", "saturday"),
        (r"\text{ odd }", "odd"),
        ("odd", "odd"),
        ("No", "no"),
        ("NO.", "no"),
        ("nan", "nan"),
        ("undefined", "undefined"),
        ("The sum is less than zero.", "the sum is less than zero"),
        (r"\text{infinitely many}", "infinitely many"),
        ("10+John's age", "10+john's age"),
        ("5 (five)", "5 five"),
        ("using", "using"),
        ("June 20", "june 20"),
        ("12/25/2020", "12/25/2020"),
        ("2020-12-25", "2020-12-25"),
        ("4:30 p.m.", "4:30 pm"),
        (r"\text{4:30 p.m.}", "4:30 pm"),
        ("4:30p..", "4:30 pm"),
        ("04:30 PM", "4:30 pm"),
        ("9 a.m.", "9:00 am"),
        ("12:05", "12:05"),
        ("2 for the first and 3 for the second", "2 for the first and 3 for the second"),
        ("The solution is $x < 5$", "the solution is x < 5"),
    ],
)
def test_words_dates_and_times_are_text(text: str, words: str) -> None:
    """What is neither mathematics nor a quantity is text in one spelling; so are dates and times."""
    assert parse(text) == Text(words)


@rows(
    "text",
    ["Odd", r"\text{odd}", r"\textbf{ODD}.", "**odd**", "**Odd.**", r"\boxed{\text{Odd}}", "'odd'", "\text{odd}"],
)
def test_words_are_compared_without_markup(text: str) -> None:
    """Markup, case, and punctuation around words do not count."""
    assert words_of(text) == "odd"


def test_words_may_be_items_and_labels() -> None:
    """A few words may stand in a list, or before a value as its label."""
    assert parse("line segment, circle") == Collection("list", (Text("line segment"), Text("circle")))
    label = Relation((Text("paolo"), Number(Fraction(18))), ("=",))
    assert parse("Paolo: 18") == parse("Paolo = 18") == label


@rows(
    ("text", "expected"),
    [
        ("17 apples", Quantity(Number(Fraction(17)), "apple")),
        (r"65 \text{ children tickets}", Quantity(Number(Fraction(65)), "children ticket")),
        ("17 is prime", Text("17 is prime")),
        ("17 or more", Text("17 or more")),
        ("17 of the five very red apples", Text("17 of the five very red apples")),
    ],
)
def test_a_few_words_behind_a_number_are_its_unit(text: str, expected: object) -> None:
    """Words behind a number count something, unless they are many or make a sentence."""
    assert parse(text) == expected


@rows("text", ["all real numbers", r"\text{All real numbers}", r"\mathbb{R}", "all reals"])
def test_all_real_numbers_is_a_set(text: str) -> None:
    """The set of real numbers is one symbol however it is named."""
    assert parse(text) == Symbol("ℝ")  # noqa: RUF001 - the name of the set


@rows("text", ["", " ", "$$", ".", r"\quad", "{", "x +", "x = = 5", ")", r"A \subset B", "5\x00", "\u202e24"])
def test_neither_mathematics_nor_words_is_unreadable(text: str) -> None:
    """What means nothing is refused, with a reason."""
    with pytest.raises(Unreadable, match=r".+"):
        parse(text)
