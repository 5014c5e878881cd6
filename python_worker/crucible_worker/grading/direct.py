"""Graders that decide by themselves, in time linear in what they read."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
from collections.abc import Sequence

from crucible_bridge.types import Verdict
from crucible_worker.grading.base import Grade

__all__ = ["MAX_INLINE_CHARS", "MAX_TEXT_BYTES", "DirectGrader", "right", "undecided", "wrong"]

MAX_TEXT_BYTES = 1_000_000
"""A response, or all targets and choices together, beyond this many bytes of UTF-8 is UNDECIDED."""
MAX_INLINE_CHARS = 20_000
"""Longer ones are judged in a thread: a few milliseconds is what the event loop may stand still."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirectGrader(abc.ABC):
    """The bounds that these graders share; `judge` does the rest."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response; UNDECIDED where it is too long or a target is missing or empty, whatever it says."""
        if not targets:
            return undecided("there is no target")
        for index, target in enumerate(targets):
            if not target.strip():
                return undecided("the target is empty" if len(targets) == 1 else f"target {index} is empty")
        if _exceeds((response,)):
            return undecided(f"the response is longer than {MAX_TEXT_BYTES:,} bytes")
        if _exceeds((*targets, *choices)):
            return undecided(f"targets and choices are longer than {MAX_TEXT_BYTES:,} bytes")
        if len(response) + sum(map(len, targets)) + sum(map(len, choices)) > MAX_INLINE_CHARS:
            return await asyncio.to_thread(self.judge, response, targets, choices)
        return self.judge(response, targets, choices)

    @abc.abstractmethod
    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Judge a response within bounds, against at least one target, none of them empty. Never raises."""


def right(extracted: str, method: str) -> Grade:
    """A response that equals a target."""
    return Grade(verdict=Verdict.CORRECT, score=1.0, extracted=extracted, method=method)


def wrong(extracted: str, method: str, reason: str = "") -> Grade:
    """A response that equals none."""
    return Grade(verdict=Verdict.INCORRECT, score=0.0, extracted=extracted, method=method, reason=reason)


def undecided(reason: str, *, extracted: str = "", method: str = "") -> Grade:
    """A response that cannot be judged, and why."""
    return Grade(verdict=Verdict.UNDECIDED, extracted=extracted, method=method, reason=reason)


def _exceeds(texts: Sequence[str]) -> bool:
    characters = sum(map(len, texts))
    if characters * 4 <= MAX_TEXT_BYTES:
        return False
    if characters > MAX_TEXT_BYTES:
        return True
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > MAX_TEXT_BYTES
