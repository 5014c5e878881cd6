"""Graders of users, found by the entry points of installed distributions in the group `crucible_worker.graders`.

An entry point names a `GraderType`; it is loaded when somebody asks for it by its name, and never in place of a grader
of ours. A distribution that brings one, whole but for its pyproject.toml:

    # [project.entry-points."crucible_worker.graders"]
    # sorted = "my_package:SORTED"
    from crucible_worker.grading.base import Grade, GraderType, Verdict

    class Sorted:
        async def grade(self, response, targets, choices=()):
            fine = response.split() == sorted(response.split())
            return Grade(verdict=Verdict.CORRECT if fine else Verdict.INCORRECT, score=float(fine), method="sorted")

    SORTED = GraderType(name="sorted", description="The words are in order.", make=lambda options: Sorted())

What it computes is its own business: it runs on the worker's event loop, in the worker's process, with all its rights.
A grader that raises, or gives what is no grade, makes an ERROR of that one response.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.types import Verdict
from crucible_worker.grading.base import Grade, Grader, GraderType

__all__ = ["GROUP", "Guarded", "find", "names"]

GROUP = "crucible_worker.graders"
"""Where graders are announced."""

_MAX_SHOWN = 300  # characters of a foreign error that is repeated
_VERDICTS = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL, Verdict.UNDECIDED, Verdict.ERROR)


def names() -> Sequence[str]:
    """Names of the graders that are announced, sorted; nothing is loaded."""
    from importlib import metadata  # 10 ms that a worker need not spend at start

    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


def find(name: str) -> GraderType | None:
    """Load the grader that is announced under a name; None where there is none.

    Raises:
        FailedPrecondition: it cannot be loaded, is none, or two distributions announce one (reason BAD_GRADER).
    """
    from importlib import metadata

    from jsonschema import Draft202012Validator, SchemaError  # 40 ms that a worker need not spend at start

    points = list(metadata.entry_points(group=GROUP, name=name))
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        raise _bad(name, "is announced twice: " + ", ".join(sorted(point.value for point in points)))
    try:
        found = points[0].load()
    except Exception as error:  # whatever foreign code does when it is imported
        raise _bad(name, f"cannot be loaded from {points[0].value!r}: {_told(error)}") from error
    if not isinstance(found, GraderType):
        raise _bad(name, f"is a {type(found).__name__} at {points[0].value!r}, not a GraderType")
    try:
        Draft202012Validator.check_schema(dict(found.options_schema))
    except SchemaError as error:
        raise _bad(name, f"has options that are no JSON schema: {error.message[:_MAX_SHOWN]}") from error
    return dataclasses.replace(found, make=lambda options: Guarded(name, _made(name, found, options)))


def _made(name: str, kind: GraderType, options: Mapping[str, Any]) -> Grader:
    try:
        made = kind.make(options)
    except BridgeError:
        raise
    except Exception as error:
        raise _bad(name, f"cannot be made: {_told(error)}") from error
    if not callable(getattr(made, "grade", None)):
        raise _bad(name, f"makes a {type(made).__name__}, which does not grade")
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """A foreign grader whose failures and nonsense are ERRORs."""

    name: str
    """Its name."""
    grader: Grader
    """It."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Have it judge one response."""
        try:
            grade = await self.grader.grade(response, targets, choices)
        except Exception as error:  # whatever foreign code does
            return self._error(f"failed: {_told(error)}")
        if not isinstance(grade, Grade):
            return self._error(f"gave a {type(grade).__name__}, not a Grade")
        if grade.verdict not in _VERDICTS:
            return self._error(f"gave the verdict {grade.verdict!r}")
        if grade.verdict.scored and not (isinstance(grade.score, int | float) and 0 <= grade.score <= 1):
            return self._error(f"said {grade.verdict} with score {grade.score!r}")
        return grade

    def _error(self, message: str) -> Grade:
        return Grade(verdict=Verdict.ERROR, method=self.name, reason=f"the grader {self.name} {message}")


def _bad(name: str, message: str) -> FailedPrecondition:
    return FailedPrecondition(f"the grader {name!r} {message}", reason="BAD_GRADER")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
