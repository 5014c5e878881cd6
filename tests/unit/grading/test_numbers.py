"""The last numbers of a text are the same whether its end is looked at alone or all of it."""

import random

from crucible_bridge.types import Verdict
from crucible_worker.grading.numbers import Numeric, last_numbers, last_numerals, with_changing_words
from tests.tables import rows

PIECES = [
    "5",
    " ",
    "\n",
    "-",
    ".",
    ",",
    "1,000",
    "3/4",
    "2.5e-3",
    " %",
    "\\%",
    "x",
    ")",
    "word ",
    "a long sentence without figures ",
]
ALL = 1_000_000
"""More than a text has numbers: it is looked at from its beginning."""


def test_the_end_is_looked_at_as_the_whole_is() -> None:
    """Numbers, signs and percent signs around the place where the look begins are those of the whole text."""
    chosen = random.Random(7)
    differ = []
    for _ in range(2_000):
        text = "".join(chosen.choices(PIECES, k=chosen.randrange(400)))
        whole = last_numbers(text, ALL)
        differ += [(text, count) for count in (1, 2, 9) if last_numbers(text, count) != whole[-count:]]
    assert differ == []


def test_a_number_far_from_the_end_is_found() -> None:
    """However much without figures follows it, with blanks or without."""
    for filling in ("word ", "x", " ", "\n"):
        assert [numeral.text for numeral in last_numerals("3 and -41.5% " + filling * 5_000, 9)] == ["3", "-41.5%"]


def test_numerals_say_where_numbers_stand() -> None:
    """Both are found alike."""
    text = "it was 10-46 = -36, or 1,000 of 5 %"
    numerals = last_numerals(text, 3)
    assert [numeral.text for numeral in numerals] == [number.text for number in last_numbers(text, 3)]
    assert [text[numeral.start :][: len(numeral.text)] for numeral in numerals] == ["-36", "1,000", "5 %"]


@rows(
    ("text", "expected"),
    [
        ("some 7 million people", "7 million"),
        ("it was 7 degrees Celsius below zero", "7 degrees Celsius below zero"),
        ("it is 5 sixteenths of a mile", "5 sixteenths"),
        ("she made 7 grand there", "7 grand"),
        ("she has 7 grand pianos", "7"),
        ("it takes 7 months", "7"),
        ("7 degrees are left", "7"),
        ("she needs 8 quarters", "8"),
        ("7% thousand", "7%"),
    ],
)
def test_words_that_change_a_number_belong_to_it(text: str, expected: str) -> None:
    """What follows a number is part of it if it changes the value, and nothing else is."""
    (number,) = last_numerals(text, 1)

    assert with_changing_words(text, number) == expected


@rows(
    ("text", "right"),
    [
        ("There is not enough information to say it is 37.", False),
        ("I'm unable to solve it; it may be 37.", False),
        ("I refuse to answer. There are 37 pears.", False),
        ("It is unclear whether it is 37.", False),
        ("I can't tell them apart. There are 37.", True),
        ("I was unable to draw it, but there are 37.", True),
        ("She has 37.</s>\nShe has 4.", True),
        ("She has 37.<end_of_turn>4", True),
        ("She has 4.</s>\nShe has 37.", False),
        ("<s>41</s> 37", True),
    ],
)
def test_numeric_passes_over_refusals_and_what_follows_the_end(text: str, right: bool) -> None:
    """A number of a refusal, or after a token that ends the text, is no answer."""
    assert (Numeric().grade_now(text, ("37",)).verdict is Verdict.CORRECT) is right
