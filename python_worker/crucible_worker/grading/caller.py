"""The grader `caller`: whoever requested the evaluation judges, over the stream on which the request came.

grader: "caller"          the caller's only grader
grader: "caller:style"    its grader "style"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import AnsweredGrade, Verdict
from crucible_worker.grading.base import Grade, Grader

__all__ = ["CALLER", "AskForGrade", "CallerGrader", "grade_of", "name_at_caller"]

CALLER = "caller"
"""The name of what stays with the caller; a name of the caller's own follows after a colon."""

AskForGrade: TypeAlias = Callable[[str, str], Awaitable[AnsweredGrade]]
"""Asks the caller's grader of a name for the grade of a response."""


def name_at_caller(name: str) -> str | None:
    """The caller's own name in "caller:NAME", empty for "caller"; None if the name is not of something at a caller."""
    scheme, colon, own = name.partition(":")
    return None if scheme != CALLER or (colon and not own) else own


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallerGrader:
    """Grades responses by a caller, once it is bound to one."""

    name: str
    """Its name at the caller; empty for the caller's only grader."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Refuse: there is no caller to ask.

        Raises:
            FailedPrecondition: always (reason NEEDS_CALLER).
        """
        raise FailedPrecondition(
            "the grader stays with its caller, and answers only in EvaluationService.EvaluateWithOrchestratorModel",
            reason=Reason.NEEDS_CALLER,
        )

    def bound(self, ask: AskForGrade) -> Grader:
        """The grader of responses to one sample."""
        return _BoundCallerGrader(name=self.name, ask=ask)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _BoundCallerGrader:
    name: str
    ask: AskForGrade

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Ask the caller; its final failure is an ERROR, next to the response.

        Raises:
            BridgeError: it may answer later, or has left.
        """
        try:
            return grade_of(await self.ask(self.name, response))
        except BackendError as error:
            if error.retryable:
                raise
            return Grade(verdict=Verdict.ERROR, reason=error.message, problem=problem_of(error))


def grade_of(answer: AnsweredGrade) -> Grade:
    """The grade that a caller gave.

    Raises:
        BackendError: verdict and score do not make a grade (reason BACKEND_ANSWER).
    """
    verdict, score = answer.verdict, answer.score
    if verdict is None:
        verdict = _of_score(score)
    if verdict is Verdict.MEASURED:
        raise _nonsense("the verdict measured, which is of evaluators without a grader")
    if not verdict.scored and score is not None:
        raise _nonsense(f"the verdict {verdict} with a score")
    if verdict.scored and score is None:
        if verdict is Verdict.PARTIAL:
            raise _nonsense("the verdict partial without a score")
        score = float(verdict is Verdict.CORRECT)
    reason = shorten(answer.reason, MAX_PROBLEM_BYTES)
    return Grade(
        verdict=verdict,
        score=score,
        extracted=answer.extracted,
        method=shorten(f"{CALLER}: {reason}", MAX_PROBLEM_BYTES) if reason else CALLER,
        reason=reason,
        measurements=answer.measurements,
    )


def _of_score(score: float | None) -> Verdict:
    if score is None:
        raise _nonsense("neither a verdict nor a score")
    return {0.0: Verdict.INCORRECT, 1.0: Verdict.CORRECT}.get(score, Verdict.PARTIAL)


def _nonsense(what: str) -> BackendError:
    return BackendError(f"the caller's grader gave {what}", reason=Reason.BACKEND_ANSWER, retryable=False)
