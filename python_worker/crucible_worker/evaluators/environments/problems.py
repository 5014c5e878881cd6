"""Groups without a process of their own: problems of one turn over any data set, and environments of the caller.

A problem has an answer, its score, and the penalty of its form.

The reward is tinker-cookbook's for ProblemEnv, `format_coef * (format - 1) + correct`, from the two metrics of each
turn: `correct`, the grader's score, and `format`, 1 for an answer that ended by itself and that the form's grader, if
there is one, considers right. Further measurements of a grader are further metrics.

    It is 42.<|im_end|>        ended by a stop sequence of the chat template
    It is 42.<|endoftext|>     ended by the end-of-sequence token: has no form if a stop sequence is required
    It is 4                    truncated: has no form
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BackendError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import AnsweredEnvironment, Datum, EpisodeAction, OpenEpisode, Sample
from crucible_worker.evaluators.base import SampleCaller, SampleContext
from crucible_worker.evaluators.environments.base import Observation, StepResult, StopCondition
from crucible_worker.evaluators.environments.episode import seed_of
from crucible_worker.evaluators.environments.group import Ungraded
from crucible_worker.evaluators.graded import problem_of_grade
from crucible_worker.grading.base import Grade, Grader, with_labels

__all__ = ["CallerProblem", "Problem", "RewardRules", "caller_of"]

# Environments that stay with the caller: each action is a question on the stream of the evaluation's request.
#
# An episode is a number of that stream. It is closed when its group is done or given up, also after its end, so that
# the caller can forget it.


def caller_of(context: SampleContext) -> SampleCaller:
    """The caller of a sample.

    Raises:
        FailedPrecondition: there is none (reason NEEDS_CALLER).
    """
    if context.caller is None:
        raise FailedPrecondition(
            "the environment stays with its caller, and answers EvaluationService.EvaluateWithOrchestratorModel alone",
            reason=Reason.NEEDS_CALLER,
        )
    return context.caller


@dataclasses.dataclass(slots=True, kw_only=True)
class CallerProblem:
    """A sample that makes groups of episodes at the caller."""

    caller: SampleCaller
    """Whom to ask."""
    environment: str
    """Its environment; empty for its only one."""
    sample: Sample
    """The sample."""
    options: Mapping[str, Any]
    """Options of the environment."""
    size: int
    """Rollouts of the group."""
    seed: int
    """Seed of the whole group."""
    rounds: int = 0
    """Groups made so far: a repeated rollout has another seed."""
    opened: list[int] = dataclasses.field(default_factory=list)
    """Episodes that have begun."""
    tags: dict[str, None] = dataclasses.field(default_factory=dict)
    """Tags of all episodes, in order."""

    async def make_envs(self) -> list[_CallerEnv]:
        """Environments of a round; an episode begins only when it is used."""
        made = [_CallerEnv(self, index, seed_of(self.seed, index, self.rounds)) for index in range(self.size)]
        self.rounds += 1
        return made

    def logging_tags(self) -> list[str]:
        """The tags that its episodes named."""
        return list(self.tags)

    def close(self) -> None:
        """Tell the caller that its episodes are over; does not wait."""
        for episode in self.opened:
            self.caller.close_episode(episode)
        self.opened.clear()


class _CallerEnv:
    """One episode."""

    def __init__(self, problem: CallerProblem, rollout: int, seed: int) -> None:
        self._problem, self._rollout, self._seed = problem, rollout, seed
        self._episode = self._turn = 0

    async def initial_observation(self) -> tuple[Observation, StopCondition] | StepResult:
        """Begin the episode."""
        problem = self._problem
        self._episode = problem.caller.new_episode()
        problem.opened.append(self._episode)
        answer = await self._asked(
            OpenEpisode(
                evaluator=problem.caller.evaluator,
                sample=problem.sample,
                seed=self._seed,
                rollout=self._rollout,
                options=problem.options,
            )
        )
        problem.tags.update(dict.fromkeys(answer.tags))
        if answer.done or answer.observation is None:
            return _result_of(answer)
        return answer.observation, answer.stop

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Tell the caller what the model did."""
        done = EpisodeAction(
            turn=self._turn, text=extra["text"], tokens=tuple(action), stop_reason=extra["stop_reason"]
        )
        self._turn += 1
        return _result_of(await self._asked(done))

    async def _asked(self, question: OpenEpisode | EpisodeAction) -> AnsweredEnvironment:
        return await self._problem.caller.follow(self._problem.environment, self._episode, question)


def _result_of(answer: AnsweredEnvironment) -> StepResult:
    return StepResult(
        reward=answer.reward,
        episode_done=answer.done,
        next_observation="" if answer.observation is None else answer.observation,
        next_stop_condition=answer.stop,
        metrics=answer.metrics,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewardRules:
    """The rules of an answer's reward."""

    grader: Grader
    """The grader of the answer; bound to its judge, if it queries one."""
    format: Grader | None
    """The grader of the form; None if any form is accepted."""
    format_coef: float
    """The penalty of a wrong form."""
    stopped: Callable[[Sequence[int]], Awaitable[bool]] | None
    """Whether a stop sequence ended these tokens; None if an answer may end in any way of its own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A sample that makes a group of rollouts; it is its own environment, as it has no state."""

    sample: Sample
    """The question and the right answers."""
    rules: RewardRules
    """The rules of an answer's reward."""
    size: int
    """Rollouts of the group."""
    tag_by: str = ""
    """Key of the sample's metadata that has its tag; empty for no tag."""

    async def make_envs(self) -> Sequence[Problem]:
        """The environments."""
        return [self] * self.size

    def logging_tags(self) -> list[str]:
        """The sample's tag, if it has one."""
        tag = self.sample.metadata.get(self.tag_by, "")
        return [tag] if tag else []

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """The sample's input."""
        asked = self.sample.input
        return (asked.model_input if isinstance(asked, Datum) else asked), ()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Grade the answer.

        Raises:
            Ungraded: a grader reached no verdict.
            InternalError: it gave an invalid score (reason BAD_SCORE).
            BridgeError: its judge could not be queried.
            FailedPrecondition: a stop sequence is required, and the model's server does not say what ended the answer
                (NO_TOKENS, NO_TOKENIZER).
            BackendError: it does not say whether the answer was truncated (BACKEND_ANSWER).
        """
        text: str = extra["text"]
        grade = await self._graded(self.rules.grader, text)
        # An output without an answer is wrong, whatever a grader says about an empty answer.
        correct = 0.0 if extra["no_answer"] else _score(grade)
        formed = 0.0
        if extra["stop_reason"] not in ("stop", "length"):
            message = "the model's server does not report whether the answer was truncated, which its format depends on"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        if extra["stop_reason"] == "stop" and (self.rules.stopped is None or await self.rules.stopped(action)):
            formed = 1.0 if self.rules.format is None else _score(await self._graded(self.rules.format, text))
        return StepResult(
            reward=self.rules.format_coef * (formed - 1) + correct,
            episode_done=True,
            metrics={**grade.measurements, "format": formed, "correct": correct},
        )

    async def _graded(self, grader: Grader, text: str) -> Grade:
        sample = self.sample
        grade = await with_labels(grader, sample.choice_labels).grade(text, sample.targets, sample.choices)
        problem = problem_of_grade(grade)
        if problem is not None:
            raise Ungraded(grade.verdict, problem)
        return grade


def _score(grade: Grade) -> float:
    if grade.score is None or not 0 <= grade.score <= 1:
        raise InternalError(f"the grader said {grade.verdict} with score {grade.score}", reason=Reason.BAD_SCORE)
    return grade.score
