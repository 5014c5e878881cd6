"""The criteria of a judge."""

from __future__ import annotations

import dataclasses
import math

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import bounds

__all__ = [
    "MAX_CRITERION_CHARS",
    "MAX_CRITERION_NAME_CHARS",
    "MAX_CRITERION_SCORE",
    "RubricCriterion",
]

MAX_CRITERION_NAME_CHARS = bounds.RUBRIC_CRITERION_NAME_MAX_CHARS
"""Characters of a criterion's name."""
MAX_CRITERION_CHARS = bounds.RUBRIC_CRITERION_DESCRIPTION_MAX_CHARS
"""Characters of its description."""

MAX_CRITERION_SCORE = bounds.RUBRIC_CRITERION_MAX_MOST
"""Largest bound of a scale, on either side of 0: squares of scores must be finite."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RubricCriterion:
    """A criterion by which an answer is judged."""

    name: str
    """A word or a few; the judge's answer uses it."""
    description: str
    """What is judged, and what its scores mean."""
    weight: float = 1.0
    """Its share of the whole, relative to the other weights; above 0."""
    min: float = 0.0
    """The lowest score, at least -MAX_CRITERION_SCORE."""
    max: float = 10.0
    """The highest score, at most MAX_CRITERION_SCORE."""

    def checked(self, field: str) -> RubricCriterion:
        """Itself, if it is valid.

        Raises:
            InvalidField: the name or the description is blank or too long, the weight is not above 0, or the scale is
                invalid; `field` is the criterion's path.
        """
        for key, most in (("name", MAX_CRITERION_NAME_CHARS), ("description", MAX_CRITERION_CHARS)):
            text = getattr(self, key)
            if not text.strip():
                raise InvalidField(f"{field}.{key}", "is blank")
            if len(text) > most:
                raise InvalidField(f"{field}.{key}", f"has {len(text):,} characters, at most {most:,} are accepted")
        if self.name != self.name.strip() or "/" in self.name or not self.name.isprintable():
            wrong = 'holds "/", what cannot be printed, or a blank at an end'
            raise InvalidField(f"{field}.name", wrong)
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidField(f"{field}.weight", f"is {self.weight}, it must be finite and above 0")
        for key in ("min", "max"):
            if not abs(getattr(self, key)) <= MAX_CRITERION_SCORE:
                within = f"it must lie within {-MAX_CRITERION_SCORE:,.0f} and {MAX_CRITERION_SCORE:,.0f}"
                raise InvalidField(f"{field}.{key}", f"is {getattr(self, key)}, {within}")
        if not self.max > self.min:
            raise InvalidField(f"{field}.max", f"is {self.max}, it must be above min, {self.min}")
        return self
