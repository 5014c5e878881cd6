"""The grader of regular expressions: targets are expressions in RE2's syntax that a response must match."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_worker.grading.base import Grade
from crucible_worker.grading.direct import DirectGrader, right, undecided, wrong
from crucible_worker.grading.patterns import MAX_PATTERN_WORK, BadPattern, TooMuchText, compiled

__all__ = ["Regex"]

_METHOD = "regex"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Regex(DirectGrader):
    """A target, as a regular expression of RE2, matches in the response.

    Case counts; `(?i)` at the start of an expression ignores it. A target that is not such an expression is
    UNDECIDED, and so is a response that is too long for the first expressions together
    (`crucible_worker.grading.patterns.MAX_PATTERN_WORK`).
    """

    full: bool = False
    """The whole response must match, white space around it included."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Search for the targets, in their order. Choices are ignored."""
        left = MAX_PATTERN_WORK
        for target in targets:
            try:
                pattern = compiled(target)
                found = pattern.find(response, full=self.full, limit=left)
                left -= pattern.size * len(response)
            except BadPattern as error:
                return undecided(f"the target {error}", method=_METHOD)
            except TooMuchText as error:
                return undecided(str(error), method=_METHOD)
            if found is not None:
                return right(found, _METHOD)
        return wrong("", _METHOD)
