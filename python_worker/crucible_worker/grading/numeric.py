"""The grader of numbers: the last one of a response, exactly, or within a tolerance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from crucible_worker.grading.base import Grade
from crucible_worker.grading.direct import TOO_LONG, DirectGrader, right, undecided, wrong
from crucible_worker.grading.numbers import MAX_MAGNITUDE, Flaw, ParsedNumber, last_numbers

__all__ = ["Numeric"]

_METHOD = "number"
# So far below the exact range that no target reaches it, not even as a percentage.
_TARGET_BOUND = 10 ** (MAX_MAGNITUDE - 3)
_EXACT_BELOW = 10 ** (MAX_MAGNITUDE - 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(DirectGrader):
    """The last number of the response equals a target's, exactly or within a tolerance.

    `crucible_worker.grading.numbers` defines numbers. A number with a percent sign equals one without
    if it does so unchanged or divided by 100: 45% = 45 = 0.45. Tolerances are exact decimals, as they are
    written, and are added: |answer - target| <= absolute + relative * |target|. A target that does not have exactly one
    number, after its marker if it has one, is UNDECIDED; a response without any is wrong.
    """

    relative_tolerance: Annotated[float, Meta(ge=0)] = 0
    """Accept a response within this share of the target's magnitude, added to the other."""
    absolute_tolerance: Annotated[float, Meta(ge=0)] = 0
    """Accept a response within this distance of the target, added to the other."""
    target_marker: str = ""
    """If a target has this marker, such as "####" in GSM8K, the text after the last one is the target."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Compare the last number with each target. Choices are ignored."""
        wanted = []
        for target in targets:
            numbers = last_numbers(target.rpartition(self.target_marker)[2] if self.target_marker else target, 2)
            if len(numbers) != 1:
                flaw = "has several numbers" if numbers else "is not a number"
                return undecided(f"the target {_short(target)} {flaw}", method=_METHOD)
            if numbers[0].flaw or numbers[0].error or abs(numbers[0].value) >= _TARGET_BOUND:
                return undecided(f"the target {_short(target)} is not a number that can be compared", method=_METHOD)
            wanted.append(numbers[0])
        found = last_numbers(response, 1)
        if not found:
            return wrong("", _METHOD, "there is no number in the response")
        answer = found[0]
        if answer.flaw is Flaw.LONG_FRACTION:
            return wrong(answer.text, TOO_LONG, answer.flaw)
        if answer.flaw is Flaw.HUGE and any(self._allowed(target.value) >= _EXACT_BELOW for target in wanted):
            return undecided(
                "the number is too large to compare with this tolerance", extracted=answer.text, method=_METHOD
            )
        if answer.flaw:
            return wrong(answer.text, _METHOD, answer.flaw)
        verdicts = [self._equal(answer, target) for target in wanted]
        if True in verdicts:
            return right(answer.text, _METHOD)
        if None in verdicts:
            return undecided("the number has too many digits to compare", extracted=answer.text, method=_METHOD)
        return wrong(answer.text, _METHOD)

    def _equal(self, answer: ParsedNumber, target: ParsedNumber) -> bool | None:
        """Whether they are equal; None if the answer's error leaves it open."""
        readings = [(answer.value, target.value)]
        if answer.percent and not target.percent:
            readings.append((answer.value / 100, target.value))
        elif target.percent and not answer.percent:
            readings.append((answer.value, target.value / 100))
        verdicts = [self._within(one, other, answer.error) for one, other in readings]
        return True if True in verdicts else None if None in verdicts else False

    def _within(self, answer: Fraction, target: Fraction, error: Fraction) -> bool | None:
        allowed = self._allowed(target)
        distance = abs(answer - target)
        if distance + error <= allowed:
            return True
        if not error:
            return False
        # The true distance differs from this one by less than the error.
        return False if distance - error >= allowed else None

    def _allowed(self, target: Fraction) -> Fraction:
        return Fraction(repr(self.absolute_tolerance)) + Fraction(repr(self.relative_tolerance)) * abs(target)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
