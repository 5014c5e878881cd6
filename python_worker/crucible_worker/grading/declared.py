'''Graders that are declared once: a function whose keyword-only parameters are its options, or a class with fields.

    def brief(response: str, targets: Sequence[str], *, max_words: Annotated[int, Meta(ge=1)] = 3) -> bool:
        """The response is short.

Args:
            max_words: words that it has at most.
        """
        return len(response.split()) <= max_words

A function returns True or False, a score from 0 to 1, or a `Grade`. It may be a coroutine, and may take the choices of
the sample as a third argument. A class has a method `grade`, see `base.Grader`; if it is a dataclass, its fields are
its options.
'''

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import Verdict
from crucible_worker.declared_options import Undeclarable, first_line, schema_of, values_of
from crucible_worker.grading.base import NO_OPTIONS, Grade, Grader, GraderType

__all__ = ["FunctionGrader", "declared_grader"]

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
        return _of_class(name, declared)
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
    return GraderType(
        name=name,
        description=first_line(declared) or "A grader without a description.",
        options_schema=schema_of(declared),
        make=lambda options: FunctionGrader(
            functools.partial(declared, **values_of(declared, options)), name, choices=len(positional) > 2
        ),
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


def _of_class(name: str, declared: type[Any]) -> GraderType:
    has_options = dataclasses.is_dataclass(declared)

    def make(options: Mapping[str, Any]) -> Grader:
        return declared(**values_of(declared, options)) if has_options else declared()

    return GraderType(
        name=name,
        description=first_line(declared) or "A grader without a description.",
        options_schema=schema_of(declared) if has_options else NO_OPTIONS,
        make=make,
    )
