"""Questions with choices, graded as mathematics: an answer is the choice that it names, or is equal to."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.base import Grade, with_labels
from crucible_worker.grading.children import ChildResult
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from tests.tables import rows

VALUES = ("1/2", "2", "\\sqrt{2}", "12")
CITIES = ("Paris", "London", "New York")


class InlinePool:
    """Does what children do, here."""

    async def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], weigh: Callable[[Any], int] = lambda item: 0
    ) -> list[ChildResult]:
        await asyncio.sleep(0)
        return [ChildResult(value=function(item)) for item in items]


async def graded(
    response: str, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str] = (), **policy: Any
) -> Grade:
    """The grade of a response by a fresh grader."""
    grader = MathGrader(cast("GradingPool", InlinePool()), MathPolicy(**policy))
    return await with_labels(grader, labels).grade(response, targets, choices)


@rows(
    ("response", "target", "choices"),
    [
        ("\\boxed{B}", "B", VALUES),
        ("The answer is (B).", "B", VALUES),
        ("The answer is 2.", "B", VALUES),
        ("\\boxed{0.5}", "A", VALUES),
        ("\\boxed{2^{1/2}}", "C", VALUES),
        ("\\boxed{(D)\\ 12}", "D", VALUES),
        ("\\boxed{D}", "12", VALUES),
        ("\\boxed{\\frac{24}{2}}", "12", VALUES),
        ("The answer is New York.", "C", CITIES),
        ("The answer is C.", "New York", CITIES),
        ("\\boxed{\\text{London}}", "B", CITIES),
        ("\\boxed{5 \\text{ km}}", "A", ("5 km", "5 cm")),
        ("That makes 12, which is option D.", "D", VALUES),
        ("Option A was my first guess. The answer is 2.", "B", VALUES),
        ("The answer is 2, not option A.", "B", VALUES),
        ("\\boxed{7}", "7", VALUES),  # a target that is no choice is compared alone
    ],
)
async def test_a_choice_is_named_by_letter_text_or_value(response: str, target: str, choices: Sequence[str]):
    """An answer that is the right choice, however it says so, is right."""
    grade = await graded(response, (target,), choices)

    assert (grade.verdict, grade.score) == (Verdict.CORRECT, 1.0), grade


@rows(
    ("response", "target", "choices"),
    [
        ("\\boxed{A}", "B", VALUES),
        ("\\boxed{12}", "B", VALUES),
        ("\\boxed{0.5}", "B", VALUES),
        ("\\boxed{3}", "B", VALUES),
        ("\\boxed{(A)\\ 2}", "D", VALUES),
        ("The answer is London.", "C", CITIES),
        ("The answer is York.", "C", CITIES),
        ("\\boxed{B}", "New York", CITIES),
        ("\\boxed{5 \\text{ cm}}", "A", ("5 km", "5 cm")),
        ("\\boxed{x = A + 1}", "A", VALUES),
        ("\\boxed{AB}", "A", VALUES),
        ("\\boxed{8}", "7", VALUES),
        ("That makes 2, so option D.", "B", VALUES),
        ("I get \\boxed{2}, which is choice (C)", "B", VALUES),
        ("That makes 2, so option B or D.", "B", VALUES),
    ],
)
async def test_another_choice_is_wrong(response: str, target: str, choices: Sequence[str]):
    """An answer that is another choice, or none, is wrong."""
    grade = await graded(response, (target,), choices)

    assert (grade.verdict, grade.score) == (Verdict.INCORRECT, 0.0), grade


async def test_an_answer_that_may_be_two_choices_is_undecided():
    """Where a missing unit makes an answer equal to two choices, nobody knows which is meant."""
    grade = await graded("\\boxed{5}", ("A",), ("5 km", "5 cm", "6 km"))

    assert (grade.verdict, grade.score) == (Verdict.UNDECIDED, None)
    assert "A, B" in grade.reason
    assert (await graded("\\boxed{5}", ("C",), ("5 km", "5 cm", "6 km"))).verdict is Verdict.INCORRECT


async def test_a_letter_and_the_text_of_another_choice_are_undecided():
    """A text that is the letter of another choice names two."""
    grade = await graded("\\boxed{B}", ("Ohm",), ("B", "Ohm"))

    assert grade.verdict is Verdict.UNDECIDED


async def test_the_method_tells_that_choices_decided():
    """The record says how the verdict came about."""
    assert (await graded("\\boxed{2}", ("B",), VALUES)).method == "choice"
    assert (await graded("\\boxed{7}", ("7",), VALUES)).method == "literal"


@rows(
    ("response", "target", "labels", "verdict"),
    [
        ("\\boxed{12}", "4", "1234", Verdict.CORRECT),
        ("\\boxed{0.5}", "2", "1234", Verdict.INCORRECT),
        ("\\boxed{4}", "4", "1234", Verdict.CORRECT),
        ("\\boxed{2}", "2", "1234", Verdict.CORRECT),
        ("\\boxed{2}", "1", "1234", Verdict.INCORRECT),
        ("\\boxed{B}", "2", "1234", Verdict.CORRECT),
        ("\\boxed{X}", "W", "WXYZ", Verdict.INCORRECT),
    ],
)
async def test_a_label_is_its_choice(response: str, target: str, labels: str, verdict: Verdict):
    """A target that is a label of the row is not compared as a number."""
    assert (await graded(response, (target,), VALUES, labels=tuple(labels))).verdict is verdict
