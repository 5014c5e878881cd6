"""What a grader is: a response and what would be right, in; a verdict with its reason, out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from crucible_bridge.types import Verdict

__all__ = ["NO_OPTIONS", "Grade", "Grader", "GraderType", "Verdict"]

NO_OPTIONS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a grader without options."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What was found of one response."""

    verdict: Verdict
    """CORRECT, INCORRECT, PARTIAL, UNDECIDED or ERROR."""
    score: float | None = None
    """From 0 to 1: 1 for CORRECT and 0 for INCORRECT, where a grader does not measure; None where it is unscored."""
    extracted: str = ""
    """What was taken for the answer."""
    extraction: str = ""
    """How it was found: "box", "marker", "math", "number"; "whole" where the response is the answer; empty unsaid."""
    method: str = ""
    """How the verdict came about: "exact", "number"."""
    reason: str = ""
    """Why, where it is not plain."""


class Grader(Protocol):
    """Judges responses. A coroutine, as some graders compute in other processes."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response: right when it equals any of the targets."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraderType:
    """A grader that can be made."""

    name: str
    """What it is asked for by."""
    description: str
    """One sentence."""
    options_schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: NO_OPTIONS)
    """JSON schema of its options, an object."""
    make: Callable[[Mapping[str, Any]], Grader]
    """Makes one of options that passed the schema and bear its defaults.

    Raises:
        InvalidField: what the schema cannot say is wrong; the path begins at the options.
    """
