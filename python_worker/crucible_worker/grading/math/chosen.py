"""Questions with choices: which choice an answer is, by its letter, its text, or a value that is equal to it."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterator, Mapping, Sequence

from crucible_bridge.types import Grade, GradeItem, Verdict
from crucible_worker.grading.base import exceeds
from crucible_worker.grading.choice import choices_that_are, names_of

__all__ = ["ChoiceQuestion"]

_METHOD = "choice"


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """The choices of the question."""

    choices: Sequence[str]
    """Their texts."""
    expected: frozenset[int]
    """The right ones, by index."""
    names: Mapping[str, int]
    """Their letters and their labels."""

    @classmethod
    def of(cls, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str] = ()) -> ChoiceQuestion | None:
        """The question whose right choices are the targets; None if a target is none of the choices, or two of them."""
        if not choices or exceeds(choices):
            return None
        named = [choices_that_are(target, choices, labels) for target in targets]
        if not named or any(len(places) != 1 for places in named):
            return None
        return cls(choices, frozenset[int]().union(*named), names_of(len(choices), labels))

    def items(self, answer: str) -> list[GradeItem]:
        """An answer next to each letter or label of a choice, and then next to the text of each."""
        return [GradeItem(answer=answer, targets=(target,)) for target in (*self.names, *self.choices)]

    def grade(self, found: Grade, grades: Sequence[Grade]) -> Grade:
        """The grade of an answer from the grades of `items`."""
        places, count = tuple(self.names.values()), len(self.names)
        by_letter = frozenset(places[place] for place in _right(grades[:count]))
        by_text = frozenset(_right(grades[count:]))
        if len(by_text) > 1:
            # 5 is both 5 km and 5 cm if units may be missing: the choice with the same text is meant.
            by_text = by_text & choices_that_are(found.extracted, self.choices) or by_text
        named = by_letter & by_text or by_letter | by_text
        duration = found.duration_ns + sum(grade.duration_ns for grade in grades)
        found = dataclasses.replace(found, method=_METHOD, reason="", duration_ns=duration)
        if named and (named <= self.expected or not named & self.expected):
            return _scored(found, right=named <= self.expected)
        if named:
            letters = ", ".join(string.ascii_uppercase[place] for place in sorted(named))
            return _undecided(found, f"the answer is several of the choices: {letters}")
        for grade in grades:
            if grade.verdict is Verdict.ERROR:
                return grade
        undecided = next((grade for grade in grades if grade.verdict is Verdict.UNDECIDED), None)
        if undecided is not None:
            return _undecided(found, undecided.reason)
        return dataclasses.replace(_scored(found, right=False), reason="the answer is none of the choices")


def _right(grades: Sequence[Grade]) -> Iterator[int]:
    return (place for place, grade in enumerate(grades) if grade.verdict is Verdict.CORRECT)


def _scored(found: Grade, *, right: bool) -> Grade:
    verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    return dataclasses.replace(found, verdict=verdict, score=float(right))


def _undecided(found: Grade, reason: str) -> Grade:
    return dataclasses.replace(found, verdict=Verdict.UNDECIDED, score=None, reason=reason)
