"""What a grader is: a response and what would be right, in; a verdict with its reason, out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from crucible_bridge.types import Verdict

__all__ = ["Grade", "Grader"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What was found of one response."""

    verdict: Verdict
    """CORRECT, INCORRECT, PARTIAL, UNDECIDED or ERROR."""
    score: float | None = None
    """1 for CORRECT, 0 for INCORRECT, between for PARTIAL; None where it is unscored."""
    extracted: str = ""
    """What was taken for the answer."""
    method: str = ""
    """How the verdict came about: "exact", "number"."""
    reason: str = ""
    """Why, where it is not plain."""


class Grader(Protocol):
    """Judges responses. A coroutine, as some graders compute in other processes."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response: right when it equals any of the targets."""
        ...
