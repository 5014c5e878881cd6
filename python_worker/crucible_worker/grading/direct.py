"""Graders that decide without a model or a child process: most in linear time; the others state their limit."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import ClassVar

from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem, Verdict
from crucible_worker.grading.base import Grade

__all__ = [
    "MAX_INLINE_CHARS",
    "MAX_SMALL_CHARS",
    "MAX_TARGETS",
    "MAX_TEXT_BYTES",
    "TOO_LONG",
    "DirectGrader",
    "blank_target",
    "exceeds",
    "measured",
    "right",
    "undecided",
    "wrong",
]

MAX_TEXT_BYTES = 1_000_000
"""A response, or all targets and choices together, beyond this many bytes of UTF-8 is not graded."""
MAX_SMALL_CHARS = 1_000
"""Characters of a small target: if all targets are small, a response that is too long is wrong."""
TOO_LONG = "too_long"
"""The method of that verdict."""
MAX_TARGETS = 1_000
"""Targets, at most; with more, a response is UNDECIDED, because it is searched for each of them."""
MAX_INLINE_CHARS = 20_000
"""Longer texts are judged in a thread: the event loop may be blocked for a few milliseconds at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirectGrader(abc.ABC):
    """The bounds that these graders share; `judge` does the rest."""

    reads_targets: ClassVar[bool] = True
    """Whether a response without a target cannot be judged."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Like `grade_now`; long texts in a thread."""
        if len(response) + sum(map(len, targets)) + sum(map(len, choices)) > MAX_INLINE_CHARS:
            return await asyncio.to_thread(self.grade_now, response, targets, choices)
        return self.grade_now(response, targets, choices)

    def grade_now(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response; UNDECIDED if a target is missing, empty or beyond a limit, whatever the response is.

        A response that is too long is wrong if all targets are small, so that length cannot prevent a score.
        """
        if self.reads_targets:
            if not targets:
                return undecided("there is no target")
            if len(targets) > MAX_TARGETS:
                return undecided(f"there are {len(targets):,} targets, at most {MAX_TARGETS:,} are read")
            if (blank := blank_target(targets)) is not None:
                return undecided("the target is empty" if len(targets) == 1 else f"target {blank} is empty")
            if exceeds((*targets, *choices)):
                return undecided(f"targets and choices are longer than {MAX_TEXT_BYTES:,} bytes")
        if exceeds((response,)):
            reason = f"the response is longer than {MAX_TEXT_BYTES:,} bytes"
            small = self.reads_targets and all(len(target) <= MAX_SMALL_CHARS for target in targets)
            return wrong("", TOO_LONG, reason) if small else undecided(reason)
        return self.judge(response, targets, choices)

    @abc.abstractmethod
    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Judge a response within bounds, against at least one target, none of them empty. Never raises."""


def right(extracted: str, method: str) -> Grade:
    """A response that equals a target."""
    return Grade(verdict=Verdict.CORRECT, score=1.0, extracted=extracted, method=method)


def wrong(extracted: str, method: str, reason: str = "") -> Grade:
    """A response that equals no target."""
    return Grade(verdict=Verdict.INCORRECT, score=0.0, extracted=extracted, method=method, reason=reason)


def measured(score: float, threshold: float, extracted: str, method: str) -> Grade:
    """A response that is right to a degree: CORRECT from the threshold on, PARTIAL below it, INCORRECT at 0."""
    verdict = Verdict.CORRECT if score >= threshold else Verdict.PARTIAL if score > 0 else Verdict.INCORRECT
    return Grade(verdict=verdict, score=score, extracted=extracted, method=method)


def undecided(reason: str, *, extracted: str = "", method: str = "", code: Reason | None = None) -> Grade:
    """A response that cannot be judged, and why; `code` counts it apart from others that are UNDECIDED."""
    problem = None if code is None else Problem(reason=code, message=reason)
    return Grade(verdict=Verdict.UNDECIDED, extracted=extracted, method=method, reason=reason, problem=problem)


def blank_target(targets: Sequence[str]) -> int | None:
    """The index of the first blank target: it has only white space, control and format characters."""
    return next((index for index, target in enumerate(targets) if all(map(_is_blank, target))), None)


def exceeds(texts: Sequence[str]) -> bool:
    """Whether texts are longer, together, than `MAX_TEXT_BYTES` of UTF-8."""
    characters = sum(map(len, texts))
    if characters * 4 <= MAX_TEXT_BYTES:
        return False
    if characters > MAX_TEXT_BYTES:
        return True
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > MAX_TEXT_BYTES


def _is_blank(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")
