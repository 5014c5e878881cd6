"""The grader of multiple choice with the labels that data give their choices."""

from collections.abc import Sequence

from crucible_bridge.types import Verdict
from crucible_worker.grading.base import with_labels
from crucible_worker.grading.choice import ChoiceGrader, choices_that_are
from crucible_worker.grading.numbers import Numeric
from tests.tables import rows

BLOOD = ("B", "A", "O", "AB")
CITIES = ("Rome", "Paris", "Oslo", "Bern")


@rows(
    ("response", "target", "choices", "labels", "verdict"),
    [
        ("AB", "A", BLOOD, "ABCD", Verdict.INCORRECT),
        ("C", "C", BLOOD, "ABCD", Verdict.CORRECT),
        ("O", "C", BLOOD, "ABCD", Verdict.CORRECT),
        # The answer itself has two readings: nothing says which was meant.
        ("A", "A", BLOOD, "ABCD", Verdict.UNDECIDED),
        ("Paris", "2", CITIES, "1234", Verdict.CORRECT),
        ("2", "2", CITIES, "1234", Verdict.CORRECT),
        ("The answer is (2) because", "2", CITIES, "1234", Verdict.CORRECT),
        ("Some words.\n2. Paris", "2", CITIES, "1234", Verdict.CORRECT),
        ("Answer: 3", "2", CITIES, "1234", Verdict.INCORRECT),
        ("B", "2", CITIES, "1234", Verdict.CORRECT),
        ("E", "E", CITIES, "EFGH", Verdict.CORRECT),
        ("F", "E", CITIES, "EFGH", Verdict.INCORRECT),
        ("2", "2", ("2", "3", "4", "5"), "1234", Verdict.UNDECIDED),
        ("5", "2", ("7", "5", "9", "6"), "1234", Verdict.CORRECT),
        ("3: Paris", "2", CITIES, "1234", Verdict.INCORRECT),
        ("2: Paris", "2", CITIES, "1234", Verdict.CORRECT),
        ("1 and 3", "1,3", CITIES, "1234", Verdict.CORRECT),
        ("1, 2 and 3", "1,3", CITIES, "1234", Verdict.INCORRECT),
    ],
)
async def test_a_label_names_its_choice(
    response: str, target: str, choices: Sequence[str], labels: str, verdict: Verdict
) -> None:
    """A target that is a label is that choice; a response may name a choice by label, letter or text."""
    grade = await with_labels(ChoiceGrader(), tuple(labels)).grade(response, [target], choices)

    assert grade.verdict is verdict, grade.reason


async def test_two_readings_of_a_target_are_named() -> None:
    """Without labels the letter of one choice that is the text of another decides nothing."""
    grade = await ChoiceGrader().grade("O", ["A"], BLOOD)

    assert grade.verdict is Verdict.UNDECIDED
    assert grade.reason.startswith("target 'A' is the letter of choice 0 and the text of choice 1: give the labels")


def test_what_a_text_is_among_labelled_choices() -> None:
    """A label hides letters and texts that are equal to it."""
    assert choices_that_are("A", BLOOD) == {0, 1}
    assert choices_that_are("A", BLOOD, "ABCD") == {0}
    assert choices_that_are("2", ("3", "2", "1", "4"), "4321") == {2}


def test_a_grader_that_reads_no_choices_stays_itself() -> None:
    """Labels concern only graders that read them; without labels there is nothing to bind."""
    numeric, choice = Numeric(), ChoiceGrader()

    assert with_labels(numeric, ("A", "B")) is numeric
    assert with_labels(choice, ()) is choice
