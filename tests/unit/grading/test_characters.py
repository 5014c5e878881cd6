"""The one spelling of characters before texts are compared."""

import sys
import time
import unicodedata

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.characters import DASHES, MAX_COMBINING_MARKS, plain, with_plain_digits
from crucible_worker.grading.math.decide import decide
from crucible_worker.grading.numbers import Numeric
from crucible_worker.grading.text import Contains, ExactMatch
from tests.tables import rows

EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


def test_the_digits_of_every_script_are_those_of_ascii() -> None:
    """Each decimal digit of Unicode has its value, and nothing else becomes a digit."""
    digits = [character for character in EVERY if character.isdecimal()]

    assert [plain(digit) for digit in digits] == [str(unicodedata.decimal(digit)) for digit in digits]
    assert [other for other in EVERY if not other.isdecimal() and plain(other).isdecimal()] == []


def test_every_dash_is_a_minus_sign_and_nothing_else_is() -> None:
    """What becomes a minus sign is in the list; the other step leaves it as it is."""
    assert {character for character in EVERY if plain(character) == "-"} == {"-", *DASHES}
    assert with_plain_digits(DASHES) == DASHES


@rows(
    ("text", "expected"),
    [
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("\u06f3\u066b\u06f1\u06f4", "3.14"),
        ("\u0661\u066c\u0662\u0665\u0660\u066a", "1,250%"),
        ("x\u00b2 + \u00bd", "x\u00b2 + \u00bd"),
        ("\u0915\u094d\u0937: \u0967\u096d", "\u0915\u094d\u0937: 17"),
        ("a \u2014 b", "a - b"),
    ],
)
def test_a_text_has_one_spelling(text: str, expected: str) -> None:
    """Letters are composed, digits and dashes those of ASCII; twice is as good as once."""
    assert plain(text) == expected
    assert plain(expected) == expected


def test_more_marks_than_are_sorted_stay_as_they_are() -> None:
    """Up to the bound marks are sorted; with one more the text is left, in linear time."""
    pair = "\u0301\u0327"
    within, beyond = "e" + pair * (MAX_COMBINING_MARKS // 2), "e" + pair * (MAX_COMBINING_MARKS // 2) + "\u0301"

    assert plain(within) == unicodedata.normalize("NFC", within) != within
    assert plain(beyond) == beyond

    begin = time.process_time()
    assert len(plain("e" + pair * 200_000)) == 400_001
    assert time.process_time() - begin < 2


def test_every_grader_reads_a_dash_alike() -> None:
    """A dash before a number is its sign for numbers, texts and mathematics."""
    for dash in DASHES:
        answer = f"{dash}4"
        graders = (Numeric(), ExactMatch(), Contains())
        below = [grader.grade_now(answer, ["-4"]).verdict for grader in graders]
        above = [grader.grade_now(answer, ["4"]).verdict for grader in graders]

        assert [*below, decide("-4", answer, MathPolicy()).verdict] == [Verdict.CORRECT] * 4, hex(ord(dash))
        assert [*above, decide("4", answer, MathPolicy()).verdict] == [Verdict.INCORRECT] * 4, hex(ord(dash))
