"""Graders and environments of this process, which answer the questions of an evaluation.

async def judge(asked: GradeQuestion) -> bool: ...          also float, Verdict, AnsweredGrade; or a plain function
def make(opened: OpenEpisode) -> Environment: ...           for each episode
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
import numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from crucible_bridge.client.calling import Note, UsersThreads
from crucible_bridge.codec.orchestrator import caller_names
from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    AnsweredEnvironment,
    AnsweredGrade,
    Conversation,
    EnvironmentQuestion,
    EpisodeAction,
    EvaluatorSpec,
    GradeQuestion,
    ModelInput,
    OpenEpisode,
    Verdict,
    bounds,
)

__all__ = ["CallerEnvironment", "CallerParts", "EnvironmentFactory", "GraderFunction", "warn_of_unused"]

_log = logging.getLogger(__name__)

Graded: TypeAlias = bool | float | Verdict | AnsweredGrade
"""What a grader returns: right or wrong, a score from 0 to 1, a verdict, or everything."""
GraderFunction: TypeAlias = Callable[[GradeQuestion], Graded | Awaitable[Graded]]
"""Grades one answer; a plain function runs in a thread."""


class CallerEnvironment(Protocol):
    """An environment for one episode, of the same shape as tinker-cookbook's `Env`; plain methods or coroutines.

    A method `close`, if there is one, is called once when nothing further is asked of it.
    """

    def initial_observation(self) -> Any:
        """The first observation, with what ends the answer: `(observation, stop)`; or an AnsweredEnvironment."""
        ...

    def step(self, action: list[int], *, extra: Any = None) -> Any:
        """Receive the model's answer.

        Args:
            action: its token ids; empty if the model's server reports none.
            extra: a dict with `stop_reason` and `text`.

        Returns:
            An AnsweredEnvironment, or any object with `reward`, `episode_done`, `next_observation`,
            `next_stop_condition` and `metrics`.
        """
        ...


EnvironmentFactory: TypeAlias = Callable[[OpenEpisode], CallerEnvironment | Awaitable[CallerEnvironment]]
"""Makes the environment of one episode."""


def warn_of_unused(parts: CallerParts, evaluators: Iterable[EvaluatorSpec]) -> None:
    """Warn of graders and environments that no option of an evaluator names: they would be ignored without a word."""
    named = {value for spec in evaluators for value in spec.options.values() if isinstance(value, str)}
    for option, names in (("grader", parts.graders), ("environment", parts.environments)):
        for name in names:
            if f"caller:{name}" not in named and not (len(names) == 1 and "caller" in named):
                _log.warning(
                    '%ss["%s"] is not used: no evaluator has the option %s "caller:%s"', option, name, option, name
                )


class CallerParts:
    """The graders and environments of one evaluation, by name."""

    def __init__(
        self,
        graders: Mapping[str, GraderFunction],
        environments: Mapping[str, EnvironmentFactory],
        threads: int,
    ) -> None:
        """Call these.

        Args:
            graders: by name.
            environments: by name.
            threads: for those that are no coroutines, at most so many.

        Raises:
            InvalidField: a name cannot be used, or one cannot be called.
        """
        for field, given in (("graders", graders), ("environments", environments)):
            if not isinstance(given, Mapping):
                shown = getattr(given, "__name__", type(given).__name__)
                example = f'{field}={{"NAME": {shown}}}'
                raise InvalidField(field, f"is a {type(given).__name__}, must be a mapping, such as {example}")
        self._graders, self._environments = dict(graders), dict(environments)
        self._threads = UsersThreads(threads)
        # Of their own: functions that hang would hold up the end of the call.
        self._closing = UsersThreads(threads)
        self._episodes: dict[int, CallerEnvironment] = {}
        # The latest work of a thread for each episode: it may go on after its question was withdrawn.
        self._work: dict[int, concurrent.futures.Future[Any]] = {}
        for field, held in (("graders", self._graders), ("environments", self._environments)):
            for name, function in held.items():
                if not callable(function):
                    raise InvalidField(f'{field}["{name}"]', f"is a {type(function).__name__}, which cannot be called")
        most, size = bounds.ORCHESTRATOR_START_GRADERS_MAX_COUNT, bounds.ORCHESTRATOR_START_GRADERS_MAX_BYTES
        self.graders = caller_names(self._graders, most, size, "graders")
        """Names of graders."""
        most, size = bounds.ORCHESTRATOR_START_ENVIRONMENTS_MAX_COUNT, bounds.ORCHESTRATOR_START_ENVIRONMENTS_MAX_BYTES
        self.environments = caller_names(self._environments, most, size, "environments")
        """Names of environments."""

    async def grade(self, question: GradeQuestion) -> AnsweredGrade:
        """Let a grader grade.

        Raises:
            BackendError: there is no such grader, or it returned no grade.
            Exception: it raises it.
        """
        grader = self._graders.get(question.grader)
        if grader is None:
            raise _unusable(f"there is no grader {question.grader!r}")
        return _grade_of(await self._threads.call(grader, question), question.grader)

    async def follow(self, question: EnvironmentQuestion) -> AnsweredEnvironment:
        """Let an environment begin an episode, or continue it; errors as of `grade`."""
        if isinstance(question.question, EpisodeAction):
            return await self._stepped(question, question.question)
        factory = self._environments.get(question.environment)
        if factory is None:
            raise _unusable(f"there is no environment {question.environment!r}")
        note = self._noting(question.episode)
        environment = await self._threads.call_noted(note, factory, question.question)
        self._episodes[question.episode] = environment
        begun = await self._threads.call_noted(note, environment.initial_observation)
        if isinstance(begun, AnsweredEnvironment):
            return begun
        if isinstance(begun, tuple | list) and len(begun) == 2:
            observation, stop = begun
            return AnsweredEnvironment(observation=_observed(observation), stop=_stops(stop))
        return _step_of(begun, done=True)

    async def _stepped(self, question: EnvironmentQuestion, action: EpisodeAction) -> AnsweredEnvironment:
        environment = self._episodes.get(question.episode)
        if environment is None:
            raise _unusable(f"the episode {question.episode} is not open")
        extra = {"stop_reason": action.stop_reason, "text": action.text}
        note = self._noting(question.episode)
        step = await self._threads.call_noted(note, environment.step, list(action.tokens), extra=extra)
        return step if isinstance(step, AnsweredEnvironment) else _step_of(step)

    def close(self) -> None:
        """Release the threads; calls in them may still end."""
        self._threads.close()
        self._closing.close()

    async def close_episode(self, episode: int) -> None:
        """Forget an episode; raises what its environment raises.

        If a thread still makes or uses the environment, that thread closes it afterwards, without a wait here.
        """
        environment, work = self._episodes.pop(episode, None), self._work.pop(episode, None)
        if work is not None and not work.done():
            loop = asyncio.get_running_loop()
            work.add_done_callback(lambda done: _close_late(_left(environment, done), loop))
            return
        close = getattr(_left(environment, work), "close", None)
        if close is not None:
            await self._closing.call(close)

    @property
    def open_episodes(self) -> Sequence[int]:
        """Episodes that are not closed."""
        return list(self._episodes.keys() | self._work.keys())

    def _noting(self, episode: int) -> Note:
        return functools.partial(self._work.__setitem__, episode)


def _left(environment: CallerEnvironment | None, work: concurrent.futures.Future[Any] | None) -> Any:
    """The environment of an episode, also if a thread made it after its question was withdrawn; None without any."""
    if environment is not None or work is None or work.cancelled() or work.exception() is not None:
        return environment
    return work.result()


def _close_late(environment: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Close an environment from the thread that used it last."""
    close = getattr(environment, "close", None)
    if close is None or loop.is_closed():
        return
    try:
        result = close()
        if inspect.iscoroutine(result):
            asyncio.run_coroutine_threadsafe(result, loop)
    except BaseException as error:  # it would end the thread
        _log.warning("an environment could not be closed", exc_info=error)


def _grade_of(given: Any, name: str) -> AnsweredGrade:
    match given:
        case AnsweredGrade():
            return given
        case Verdict():
            return AnsweredGrade(verdict=given)
        case bool() | np.bool_():
            return AnsweredGrade(verdict=Verdict.CORRECT if bool(given) else Verdict.INCORRECT)
        case numbers.Real():
            score = float(given)
            if 0 <= score <= 1:
                return AnsweredGrade(score=score)
            raise _unusable(f"the grader {name!r} returned the score {score}, which is not from 0 to 1")
        case _:
            raise _unusable(
                f"the grader {name!r} returned a {type(given).__name__}: return a bool, a score from 0 to 1, a Verdict "
                "or an AnsweredGrade"
            )


def _step_of(step: Any, *, done: bool = False) -> AnsweredEnvironment:
    for name in ("reward", "episode_done"):
        if not hasattr(step, name) and not (done and name == "episode_done"):
            raise _unusable(
                f"the environment returned a {type(step).__name__}, which has no {name}: return an AnsweredEnvironment"
            )
    done = done or bool(step.episode_done)
    metrics = getattr(step, "metrics", None) or {}
    return AnsweredEnvironment(
        observation=None if done else _observed(getattr(step, "next_observation", None)),
        reward=float(step.reward),
        done=done,
        metrics={name: float(value) for name, value in metrics.items() if value is not None},
        stop=() if done else _stops(getattr(step, "next_stop_condition", ())),
    )


def _observed(observation: Any) -> str | Conversation | ModelInput:
    if isinstance(observation, str | Conversation | ModelInput):
        return observation
    try:
        return ModelInput.of(observation.to_ints() if hasattr(observation, "to_ints") else observation)
    except (TypeError, ValueError, InvalidField) as error:
        message = f"the environment observed a {type(observation).__name__}, which is neither text nor tokens"
        raise _unusable(message) from error


def _stops(stop: Any) -> tuple[str | int, ...]:
    stops = () if stop is None else stop
    if not isinstance(stops, list | tuple) or not all(isinstance(each, str | numbers.Integral) for each in stops):
        raise _unusable("the environment gave a stop condition that is not a list of texts or token ids")
    return tuple(each if isinstance(each, str) else int(each) for each in stops)


def _unusable(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
