"""Environments that stay with the caller: each action is a question on the stream of the evaluation's request.

An episode is a number of that stream. It is closed when its group is done or given up, also after its end, so that the
caller can forget it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import AnsweredEnvironment, EpisodeAction, OpenEpisode, Sample
from crucible_worker.evaluators.base import SampleCaller, SampleContext
from crucible_worker.evaluators.environments.base import Observation, StepResult, StopCondition
from crucible_worker.evaluators.environments.episode import seed_of

__all__ = ["CallerProblem", "caller_of"]


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
