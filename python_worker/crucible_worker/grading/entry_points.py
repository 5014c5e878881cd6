"""Graders of users, found by the entry points of installed distributions in the group `crucible_worker.graders`.

An entry point names a function or a class, see `declared`, or a `GraderType`. It is loaded when a request names it, and
never replaces a built-in grader. A complete distribution with a grader, except for its pyproject.toml:

    # [project.entry-points."crucible_worker.graders"]
    # in_order = "my_package:in_order"
    def in_order(response, targets):
        return response.split() == sorted(response.split())

The worker does not restrict what it computes: it runs on the worker's event loop, in the worker's process, with all its
rights. A grader that raises, or returns something other than a grade, makes that one response an ERROR.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Verdict
from crucible_worker.declared_options import Undeclarable
from crucible_worker.grading.base import Grade, Grader, GraderType
from crucible_worker.grading.declared import declared_grader
from crucible_worker.util.entry_points import EntryPoints, told
from crucible_worker.util.error_reporter import ErrorReporter, with_id

__all__ = ["GROUP", "GuardedGrader", "find", "guarded", "names"]

GROUP = "crucible_worker.graders"
"""The entry point group of graders."""

_log = structlog.get_logger(__name__)
_POINTS = EntryPoints(group=GROUP, what="grader", reason=Reason.BAD_GRADER)
_VERDICTS = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL, Verdict.UNDECIDED, Verdict.ERROR)


def names() -> Sequence[str]:
    """Names of the graders in the group, sorted; nothing is loaded."""
    return _POINTS.names()


def find(name: str) -> GraderType | None:
    """Load the grader of a name from the group; None if there is none.

    Raises:
        FailedPrecondition: it cannot be loaded, is not a grader, or two distributions provide one of this name (reason
            BAD_GRADER); it needs a library that is not installed (EXTRA_NOT_INSTALLED).
    """
    loaded = _POINTS.load(name)
    if loaded is None:
        return None
    place, found = loaded
    try:
        declared = found if isinstance(found, GraderType) else declared_grader(name, found, place)
    except Undeclarable as error:
        raise _POINTS.bad(name, str(error)) from error
    return guarded(name, declared)


def guarded(name: str, declared: GraderType) -> GraderType:
    """The same grader, with its failures contained.

    Raises:
        FailedPrecondition: no valid JSON schema describes its options (reason BAD_GRADER).
    """
    _POINTS.check_schema(name, declared.options_schema)
    return dataclasses.replace(declared, make=lambda options: GuardedGrader(name, _made(name, declared, options)))


def _made(name: str, kind: GraderType, options: Mapping[str, Any]) -> Grader:
    try:
        made = kind.make(options)
    except BridgeError:
        raise
    except Exception as error:
        raise _POINTS.bad(name, f"cannot be made: {told(error)}") from error
    if not callable(getattr(made, "grade", None)):
        raise _POINTS.bad(name, f"makes a {type(made).__name__}, which does not grade")
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class GuardedGrader:
    """A foreign grader. If it fails or returns nonsense, the grade is ERROR."""

    name: str
    """Its name."""
    grader: Grader
    """It."""
    failures: ErrorReporter = dataclasses.field(default_factory=ErrorReporter, repr=False, compare=False)
    """What it raised."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Let it judge one response."""
        try:
            grade = await self.grader.grade(response, targets, choices)
        except Exception as error:  # foreign code may raise anything
            error_id = self.failures.logged(_log, "grader_failed", error, grader=self.name)
            return self._error(with_id(f"failed: {told(error)}", error_id))
        if not isinstance(grade, Grade):
            return self._error(f"gave a {type(grade).__name__}, not a Grade")
        if grade.verdict not in _VERDICTS:
            return self._error(f"gave the verdict {grade.verdict!r}")
        if grade.verdict.scored and not (isinstance(grade.score, int | float) and 0 <= grade.score <= 1):
            return self._error(f"said {grade.verdict} with score {grade.score!r}")
        return grade

    def _error(self, message: str) -> Grade:
        return Grade(verdict=Verdict.ERROR, method=self.name, reason=f"the grader {self.name} {message}")
