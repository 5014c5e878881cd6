"""Graders that compare texts: exact match, and whether one holds the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_worker.grading.base import Grade
from crucible_worker.grading.direct import DirectGrader, right, undecided, wrong
from crucible_worker.grading.normalize import NORMALIZATION_SCHEMA, Normalization, Unnormalizable
from crucible_worker.grading.tokens import tokens_of

__all__ = ["CONTAINS_SCHEMA", "EXACT_MATCH_SCHEMA", "Contains", "ExactMatch"]

EXACT_MATCH_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": NORMALIZATION_SCHEMA,
    "additionalProperties": False,
}
"""Options of `ExactMatch`."""

# White space never counts between tokens.
CONTAINS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {key: NORMALIZATION_SCHEMA[key] for key in ("fold_case", "nfkc", "strip_punctuation")},
    "additionalProperties": False,
}
"""Options of `Contains`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(DirectGrader):
    """Right where the whole response equals a target, both normalised alike."""

    normalization: Normalization = Normalization()
    """What does not count; by default white space around."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Compare the whole texts. Choices play no part."""
        try:
            answer = self.normalization(response)
            equal = any(self.normalization(target) == answer for target in targets)
        except Unnormalizable as error:
            return undecided(str(error), method="exact")
        return right(answer, "exact") if equal else wrong(answer, "exact")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contains(DirectGrader):
    """Right where the response holds a target as whole words and numbers: "46" is in "it is 46.", not in "146".

    What a word and a number are is said in `crucible_worker.grading.tokens`. White space between them does not count.
    A response that names several answers holds each of them: this grader suits targets that are not said by chance.
    """

    normalization: Normalization = Normalization()
    """What does not count besides."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Look for each target. Choices play no part."""
        try:
            held = tokens_of(self.normalization(response))
            for target in targets:
                if tokens_of(self.normalization(target)) in held:
                    return right(target, "contains")
        except Unnormalizable as error:
            return undecided(str(error), method="contains")
        return wrong("", "contains")
