"""Graders of users, found by the entry points of installed distributions in the group `crucible_worker.graders`.

An entry point names a function or a class, see `declared`, or a `GraderType`. It is loaded when somebody asks for it by
its name, and never in place of a grader of ours. A distribution that brings one, whole but for its pyproject.toml:

    # [project.entry-points."crucible_worker.graders"]
    # in_order = "my_package:in_order"
    def in_order(response, targets):
        return response.split() == sorted(response.split())

What it computes is its own business: it runs on the worker's event loop, in the worker's process, with all its rights.
A grader that raises, or gives what is no grade, makes an ERROR of that one response.
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
from crucible_worker.entry_points import EntryPoints, told
from crucible_worker.faults import logged, with_id
from crucible_worker.grading.base import Grade, Grader, GraderType
from crucible_worker.grading.declared import declared_grader

__all__ = ["GROUP", "Guarded", "find", "guarded", "names"]

GROUP = "crucible_worker.graders"
"""Where graders are announced."""

_log = structlog.get_logger(__name__)
_POINTS = EntryPoints(group=GROUP, what="grader", reason=Reason.BAD_GRADER)
_VERDICTS = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL, Verdict.UNDECIDED, Verdict.ERROR)


def names() -> Sequence[str]:
    """Names of the graders that are announced, sorted; nothing is loaded."""
    return _POINTS.names()


def find(name: str) -> GraderType | None:
    """Load the grader that is announced under a name; None where there is none.

    Raises:
        FailedPrecondition: it cannot be loaded, is none, or two distributions announce one (reason BAD_GRADER); it
            needs a library that is not installed (EXTRA_NOT_INSTALLED).
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
    """The same grader, kept from doing harm.

    Raises:
        FailedPrecondition: its options are described by no JSON schema (reason BAD_GRADER).
    """
    _POINTS.check_schema(name, declared.options_schema)
    return dataclasses.replace(declared, make=lambda options: Guarded(name, _made(name, declared, options)))


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
            error_id = logged(_log, "grader_failed", error, grader=self.name)
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
