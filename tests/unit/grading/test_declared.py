"""Graders that are a function or a class: what they judge, their options, and what is none."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from msgspec import Meta

from crucible_bridge.types import Verdict
from crucible_worker.grading.base import Grade
from crucible_worker.grading.custom import declared_grader
from crucible_worker.util.options import Undeclarable, checked_options
from tests.tables import rows


def brief(response: str, targets: Sequence[str], *, max_words: Annotated[int, Meta(ge=1)] = 3) -> bool:
    """The response is short.

    Args:
        response: what was said.
        targets: not looked at.
        max_words: words that it has at most.
    """
    return len(response.split()) <= max_words


async def share(response: str, targets: Sequence[str], choices: Sequence[str]) -> float:
    """How many of the choices it names."""
    return sum(choice in response for choice in choices) / len(choices)


def graded(response: str, targets: Sequence[str]) -> Grade:
    """Says more."""
    return Grade(verdict=Verdict.UNDECIDED, reason="who knows")


@dataclasses.dataclass(frozen=True)
class Brief:
    """The response is short."""

    max_words: Annotated[int, Meta(ge=1)] = 3
    """Words that it has at most."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response."""
        return Grade(verdict=Verdict.CORRECT, score=float(len(response.split()) <= self.max_words))


async def _grade(declared: Any, response: str, choices: Sequence[str] = (), **options: Any) -> Grade:
    kind = declared_grader("it", declared, "it.py:it")
    return await kind.make(checked_options(options, kind.options_schema, "options")).grade(response, ["x"], choices)


@rows(
    ("declared", "response", "options", "expected"),
    [
        (brief, "a b", {}, (Verdict.CORRECT, 1.0)),
        (brief, "a b", {"max_words": 1.0}, (Verdict.INCORRECT, 0.0)),
        (share, "a b", {}, (Verdict.PARTIAL, 0.5)),
        (share, "a b c d", {}, (Verdict.CORRECT, 1.0)),
        (graded, "a", {}, (Verdict.UNDECIDED, None)),
        (Brief, "a b", {"max_words": 1}, (Verdict.CORRECT, 0.0)),
    ],
)
async def test_what_a_function_or_a_class_says_is_the_grade(
    declared: Any, response: str, options: dict[str, Any], expected: tuple[Verdict, float | None]
) -> None:
    """True and False, a share, or a grade; functions may be coroutines and take the choices."""
    grade = await _grade(declared, response, ["a", "b", "c", "d"], **options)

    assert (grade.verdict, grade.score) == expected


@rows("declared", [brief, Brief])
def test_the_options_of_a_function_and_of_a_class_are_the_same(declared: Any) -> None:
    """Keyword parameters there, fields here, with their bounds and what is said of them."""
    kind = declared_grader("it", declared, "it.py:it")

    (rule,) = kind.options_schema["properties"].values()
    assert (rule["type"], rule["minimum"], rule["default"]) == ("integer", 1, 3)
    assert rule["description"].lower() == "words that it has at most."
    assert kind.description == "The response is short."


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (5, "is a int at 'it.py:it', not a GraderType, a function or a class"),
        (dict, "is the class dict at 'it.py:it', which has no method grade"),
        (lambda response: True, "takes (response) at 'it.py:it': a grader takes (response, targets)"),
        (lambda a, b, c, d: True, "takes (a, b, c, d)"),
    ],
)
def test_what_is_no_grader_says_why(declared: Any, says: str) -> None:
    """With where it stands."""
    with pytest.raises(Undeclarable) as caught:
        declared_grader("it", declared, "it.py:it")

    assert says in str(caught.value)
