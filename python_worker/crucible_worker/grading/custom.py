"""Graders of users: functions or classes that declare them, and the entry points by which they are found.

An entry point of an installed distribution, in the group `crucible_worker.graders`, names a function or a class, or a
`GraderType`. It is loaded when a request names it, and never replaces a built-in grader. A complete distribution with
a grader, except for its pyproject.toml:

    # [project.entry-points."crucible_worker.graders"]
    # in_order = "my_package:in_order"
    def in_order(response, targets):
        return response.split() == sorted(response.split())

The worker does not restrict what a grader computes: it runs on the worker's event loop, in the worker's process, with
all its rights. A grader that raises, or returns something other than a grade, makes that one response an ERROR.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Verdict
from crucible_worker.grading.base import NO_OPTIONS, Grade, Grader, GraderType
from crucible_worker.util.entry_points import EntryPoints, error_text
from crucible_worker.util.error_reporter import ErrorReporter, with_id
from crucible_worker.util.options import Undeclarable, first_line, schema_of, values_of

__all__ = ["GROUP", "FunctionGrader", "GuardedGrader", "declared_grader", "find", "guarded", "names"]


# Graders that are declared once: a function whose keyword-only parameters are its options, or a class with fields.
#
#     def brief(response: str, targets: Sequence[str], *, max_words: Annotated[int, Meta(ge=1)] = 3) -> bool:
#         "The response is short."
#         return len(response.split()) <= max_words
#
# A function returns True or False, a score from 0 to 1, or a `Grade`. It may be a coroutine, and may take the choices
# of the sample as a third argument. A class has a method `grade`, see `base.Grader`; if it is a dataclass, its fields
# are its options.

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def declared_grader(name: str, declared: Any, where: str) -> GraderType:
    """The grader that a function or a class declares.

    Args:
        name: its value in the option `grader`.
        declared: the function or class.
        where: its place in the source, for errors.

    Raises:
        Undeclarable: it is neither, or does not have the shape of a grader; the message says how.
    """
    if isinstance(declared, type):
        if not callable(getattr(declared, "grade", None)):
            raise Undeclarable(f"is the class {declared.__name__} at {where!r}, which has no method grade")
        return _grader(
            name, declared, declared, schema_of(declared) if dataclasses.is_dataclass(declared) else NO_OPTIONS
        )
    if not inspect.isroutine(declared):
        raise Undeclarable(f"is a {type(declared).__name__} at {where!r}, not a GraderType, a function or a class")
    positional = [each for each in inspect.signature(declared).parameters.values() if each.kind in _POSITIONAL]
    needed = [each for each in positional if each.default is each.empty]
    if len(positional) < 2 or len(needed) > 3:
        takes = ", ".join(each.name for each in positional)
        raise Undeclarable(
            f"takes ({takes}) at {where!r}: a grader takes (response, targets) or (response, targets, choices), and "
            "its options by keyword, after *"
        )

    def make(**options: Any) -> Grader:
        return FunctionGrader(functools.partial(declared, **options), name, choices=len(positional) > 2)

    return _grader(name, declared, make, schema_of(declared))


def _grader(name: str, declared: Any, make: Callable[..., Grader], schema: Mapping[str, Any]) -> GraderType:
    return GraderType(
        name=name,
        description=first_line(declared) or "A grader without a description.",
        options_schema=schema,
        make=lambda options: make(**(values_of(declared, options) if options else {})),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionGrader:
    """Judges responses by a function."""

    function: Callable[..., Any]
    """The function, with its options."""
    name: str
    """The name of the grader."""
    choices: bool = False
    """Whether it takes the choices of a sample."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response.

        Raises:
            Exception: what the function raises.
        """
        found = self.function(response, targets, choices) if self.choices else self.function(response, targets)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, bool | int | float):
            return self._scored(float(found))
        return found

    def _scored(self, score: float) -> Grade:
        verdict = {0.0: Verdict.INCORRECT, 1.0: Verdict.CORRECT}.get(score, Verdict.PARTIAL)
        return Grade(verdict=verdict, score=score, method=self.name)


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
        raise _POINTS.bad(name, f"cannot be made: {error_text(error)}") from error
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
            return self._error(with_id(f"failed: {error_text(error)}", error_id))
        if not isinstance(grade, Grade):
            return self._error(f"gave a {type(grade).__name__}, not a Grade")
        if grade.verdict not in _VERDICTS:
            return self._error(f"gave the verdict {grade.verdict!r}")
        if grade.verdict.scored and not (isinstance(grade.score, int | float) and 0 <= grade.score <= 1):
            return self._error(f"said {grade.verdict} with score {grade.score!r}")
        return grade

    def _error(self, message: str) -> Grade:
        return Grade(verdict=Verdict.ERROR, method=self.name, reason=f"the grader {self.name} {message}")
