"""Graders and environments that stay with the caller: whether it has them, and how samples ask them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible_bridge.errors import Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    AnsweredEnvironment,
    AnsweredGrade,
    EnvironmentQuestion,
    EpisodeAction,
    EvaluatorSpec,
    GradeQuestion,
    OpenEpisode,
    Sample,
)
from crucible_worker.backends.orchestrator import Caller, chosen
from crucible_worker.engine.preparation import option_path
from crucible_worker.evaluators.base import CallerPart, Evaluator, PartKind, caller_parts
from crucible_worker.grading.caller import CALLER
from crucible_worker.inference.retries import RetryPolicy

__all__ = ["GatedCaller", "refuse_without_caller", "unused_parts"]

_MAX_SHOWN = 60  # characters of a wrong name that an error repeats


def refuse_without_caller(evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]], caller: Caller | None) -> None:
    """Refuse evaluators that name what the caller does not hold.

    Raises:
        FailedPrecondition: there is no caller to ask (reason NEEDS_CALLER); names the option.
        InvalidField: it has none of this name (reason UNKNOWN_GRADER, UNKNOWN_ENVIRONMENT); likewise.
    """
    for index, (_, evaluator) in enumerate(evaluators):
        for part in caller_parts(evaluator):
            path = option_path(index, part.option)
            if caller is None:
                raise FailedPrecondition(
                    f"is {part.text[:_MAX_SHOWN]!r}, which stays with the caller: request it by "
                    "EvaluationService.EvaluateWithOrchestratorModel, and stay connected",
                    reason=Reason.NEEDS_CALLER,
                    field=path,
                )
            _refuse_unheld(part, caller, path)


def unused_parts(evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]], caller: Caller) -> list[tuple[PartKind, str]]:
    """The parts of a caller that no evaluator names: its graders, then its environments."""
    named = [
        (part.kind, chosen(part.name, _held(part.kind, caller))) for _, one in evaluators for part in caller_parts(one)
    ]
    return [(kind, name) for kind in PartKind for name in _held(kind, caller) if (kind, name) not in named]


def _refuse_unheld(part: CallerPart, caller: Caller, path: str) -> None:
    held = _held(part.kind, caller)
    if chosen(part.name, held) is not None:
        return
    what = f"{part.kind}s"
    if not held:
        why = f"and start.{what} is empty: name there what the caller has"
    else:
        listed = ", ".join(f"{CALLER}:{name}" for name in held)
        why = f"and the caller has: {listed}"
    reason = Reason.UNKNOWN_GRADER if part.kind is PartKind.GRADER else Reason.UNKNOWN_ENVIRONMENT
    raise InvalidField(path, f"is {part.text[:_MAX_SHOWN]!r}, {why}", reason=reason)


def _held(kind: PartKind, caller: Caller) -> Sequence[str]:
    return caller.graders if kind is PartKind.GRADER else caller.environments


class GatedCaller:
    """A caller as one sample sees it: its answers count as progress, and questions for grades are retried.

    A question to an environment is not: an environment may have acted on it. Its rollout fails, and is repeated from
    its beginning as far as the evaluator's strategy allows.
    """

    __slots__ = ("_answered", "_caller", "_gate", "_repeat", "evaluator")

    def __init__(
        self, caller: Caller, gate: RetryPolicy, answered: Callable[[], None], *, evaluator: str, repeat: int
    ) -> None:
        """Of a caller.

        Args:
            caller: the caller.
            gate: each question passes it.
            answered: called after each answer.
            evaluator: name of the evaluator.
            repeat: number of the sample's run.
        """
        self.evaluator = evaluator
        self._caller, self._gate, self._answered, self._repeat = caller, gate, answered, repeat

    async def grade(self, grader: str, sample: Sample, response: str) -> AnsweredGrade:
        """See `evaluators.base.SampleCaller`."""
        question = GradeQuestion(
            grader=chosen(grader, self._caller.graders) or grader,
            evaluator=self.evaluator,
            sample=sample,
            repeat=self._repeat,
            response=response,
        )
        self._gate.asking += 1
        try:
            answer = await self._gate.call(self._caller.grade, (question,))
        finally:
            self._gate.asking -= 1
        self._answered()
        return answer

    def new_episode(self) -> int:
        """See `evaluators.base.SampleCaller`."""
        return self._caller.new_episode()

    async def follow(
        self, environment: str, episode: int, question: OpenEpisode | EpisodeAction
    ) -> AnsweredEnvironment:
        """See `evaluators.base.SampleCaller`."""
        if self._gate.closed:
            raise Cancelled("the evaluation has ended")
        asked = EnvironmentQuestion(
            environment=chosen(environment, self._caller.environments) or environment,
            episode=episode,
            question=question,
        )
        self._gate.asking += 1
        try:
            answer = await self._caller.follow(asked)
        finally:
            self._gate.asking -= 1
        self._answered()
        return answer

    def close_episode(self, number: int) -> None:
        """See `evaluators.base.SampleCaller`."""
        self._caller.close_episode(number)
