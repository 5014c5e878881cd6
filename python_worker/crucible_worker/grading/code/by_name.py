"""The grader `code`: a sample's targets are tests; the program in the response must pass every one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import CodeItem, CodeLimits, OutputComparison, Verdict
from crucible_bridge.types.code_tests import BadTests, compared, read_tests
from crucible_worker.grading.base import Grade, Grader, undecided
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.options import CodeOptions
from crucible_worker.grading.code.sandbox import SandboxSlots, find_bubblewrap, none_wanted
from crucible_worker.grading.fanout.graders import ClusterPlaces, ProgramGrader, programs_on
from crucible_worker.util.options import values_of

__all__ = ["Code", "code_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Judges the program in a response. Choices are ignored."""

    grader: ProgramGrader
    """The judge of programs, on the worker's places."""
    limits: CodeLimits = CodeLimits()
    """The limits of a program."""
    comparison: OutputComparison = OutputComparison()
    """How output and values are compared in tests without a comparison."""
    image: CodeImage | None = None
    """The image with the packages that can be imported."""
    partial: bool = False
    """Whether the score is the share of passed tests."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response: right when its program passes every target, see `records`.

        Raises:
            FailedPrecondition: no sandbox starts here (reason NO_SANDBOX).
        """
        if not targets:
            return undecided("there is no target")
        try:
            prefix, tests = read_tests(targets)
        except BadTests as error:
            return Grade(verdict=Verdict.ERROR, reason=str(error))
        item = CodeItem(response=response, prefix=prefix, tests=compared(tests, self.comparison))
        grade = await self.grader.grade(item, self.limits, self.image)
        if grade.verdict is Verdict.PARTIAL and not self.partial:
            grade = dataclasses.replace(grade, verdict=Verdict.INCORRECT, score=0.0)
        return Grade.of(grade)


def code_of(options: Mapping[str, Any], *, places: SandboxSlots | ClusterPlaces | None) -> Grader:
    """A grader on the worker's places, from options that fit the schema of `CodeOptions`.

    Raises:
        FailedPrecondition: programs cannot be run here (reason NO_SANDBOX).
        InvalidField: there is no such image.
    """
    if places is None:
        raise none_wanted()
    if isinstance(places, SandboxSlots):
        find_bubblewrap()  # before anything is sampled; nodes of a cluster look when they grade
    given = CodeOptions(**values_of(CodeOptions, options))
    return Code(
        grader=programs_on(places),
        limits=given.limits,
        comparison=given.comparison,
        image=places.image(given.image, '["image"]'),
        partial=given.partial,
    )
