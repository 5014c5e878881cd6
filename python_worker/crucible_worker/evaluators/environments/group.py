"""The rollouts of one problem, made together as they may depend on each other, and the handling of failed ones.

    fail_fast           a failed rollout fails its group, and with it the evaluator
    retry               up to max_retries failed rollouts of a group are repeated; one more fails the group
    min_viable_group    they are repeated until min_successful have succeeded; the others are left out

These are tinker-cookbook's FailFast, RetryOnFailure and MinViableGroup, with one difference: rollouts are repeated in
rounds, after all others of the group have ended. So every attempt repeats the same ones.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem, Verdict
from crucible_worker.evaluators.environments.base import Env, GroupBuilder, Rollout
from crucible_worker.evaluators.environments.episode import (
    MAX_NAME_CHARS,
    EnvironmentCaller,
    EpisodeCalls,
    finite,
    numbers_of,
    play,
    seed_of,
)
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure

__all__ = [
    "MAX_GROUP_SIZE",
    "MAX_TAGS",
    "VIABLE_SHARE",
    "Failure",
    "FailurePolicy",
    "Group",
    "GroupState",
    "Strategy",
    "Ungraded",
    "run",
]

MAX_GROUP_SIZE = 256
"""Environments of one group, at most."""
MAX_TAGS = 32
"""Tags of one group, at most."""
VIABLE_SHARE = 0.75
"""The default share of a group's rollouts that must succeed, rounded up."""


_ALL = "all"


class Strategy(enum.StrEnum):
    """How failed rollouts are handled; see the module."""

    FAIL_FAST = "fail_fast"
    RETRY = "retry"
    MIN_VIABLE_GROUP = "min_viable_group"


class Ungraded(Exception):
    """A grader reached no verdict. Not repeated: only answers that suit the grader would then be graded."""

    def __init__(self, verdict: Verdict, problem: Problem) -> None:
        """Make one with UNDECIDED or ERROR, and the reason."""
        super().__init__(problem.message)
        self.verdict = verdict
        self.problem = problem


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """How failures are tolerated."""

    strategy: Strategy
    """How failed rollouts are handled."""
    max_retries: int
    """Rollouts of a group that are repeated, at most."""
    min_successful: int | None
    """Rollouts that must succeed; None for `VIABLE_SHARE` of the group."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a rollout failed, or a step before or after all of them."""

    kind: str
    """The kind under which it is counted: the name of an exception's class, or a reason."""
    message: str
    """The message."""
    verdict: Verdict = Verdict.ERROR
    """The verdict of its group: UNDECIDED if only a verdict is missing."""
    retryable: bool = False
    """Whether the group may succeed when its evaluation resumes later."""
    final: bool = False
    """Whether repeating the rollout is useless."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The result of a group."""

    rollouts: Sequence[Rollout] = ()
    """Successful rollouts, in the order of their environments."""
    rewards: Sequence[float] = ()
    """The reward of each in addition to its turns'."""
    metrics: Sequence[dict[str, float]] = ()
    """Further numbers of each."""
    tags: tuple[str, ...] = ()
    """The group's."""
    failures: collections.Counter[str]
    """Failed rollouts by kind, including repeated ones, and failures of the group as a whole."""
    failure: Failure | None = None
    """Why the group failed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The state of a group when a round of its rollouts begins, or after the last round."""

    size: int = 0
    """Environments of the group; 0 before they are made for the first time."""
    alive: tuple[int, ...] = ()
    """Rollouts that have succeeded or are made in this round, by the indices of their environments, sorted."""
    todo: tuple[int, ...] = ()
    """Rollouts that are made in this round, sorted."""
    round_: int = 0
    """Rounds before this one."""
    retries: int
    """Rollouts that may still be repeated."""
    failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Rollouts that failed before this round, by kind."""

    def after(self, failed: Mapping[int, Failure], tolerance: FailurePolicy) -> GroupState | Failure | None:
        """What follows a round in which these rollouts failed.

        Returns:
            The next round; or why the group failed; or None if it succeeded.
        """
        stand = [index for index in self.alive if index not in failed]
        floor = _floor(tolerance, self.size)
        todo = _again(failed, tolerance.strategy, self.retries, floor - len(stand))
        if not todo:
            return _of_group(failed, len(stand), self.size, floor) if len(stand) < floor else None
        counted = collections.Counter(self.failures)
        counted.update(failure.kind for failure in failed.values())
        return GroupState(
            size=self.size,
            alive=tuple(sorted({*stand, *todo})),
            todo=tuple(todo),
            round_=self.round_ + 1,
            retries=self.retries - len(todo),
            failures=counted,
        )

    def lost(self, why: Failure, tolerance: FailurePolicy) -> GroupState | Group:
        """What follows if the process of the group is lost: within a round, successful rollouts fail as well."""
        if not self.todo:
            return self.of(why)
        failed = dict.fromkeys(self.alive, why)
        following = self.after(failed, tolerance)
        if isinstance(following, GroupState):
            return following
        counted = collections.Counter(self.failures)
        counted[why.kind] += len(failed)
        return Group(failures=counted, failure=why if following is None else following)

    def of(self, why: Failure) -> Group:
        """The group if a step before or after its rounds has failed."""
        return Group(failures=collections.Counter(self.failures) + collections.Counter([why.kind]), failure=why)


async def run(
    make: Callable[[], GroupBuilder],
    call: EnvironmentCaller,
    asker: EpisodeCalls,
    tolerance: FailurePolicy,
    *,
    seed: int,
    max_turns: int,
    course: GroupState | None = None,
    tell: Callable[[GroupState], None] = lambda course: None,
) -> Group:
    """Make the rollouts of one problem.

    Args:
        make: makes the problem.
        call: calls it, and everything that it makes, in the right thread.
        asker: the model.
        tolerance: how failed rollouts are handled.
        seed: of the whole group.
        max_turns: of one rollout.
        course: the state that the group reached elsewhere; if None it begins.
        tell: called with the state when each round begins, and after the last one.

    Raises:
        Cancelled: the evaluation has ended.
    """
    begun = GroupState(retries=tolerance.max_retries) if course is None else course
    failures = collections.Counter(begun.failures)
    try:
        builder: GroupBuilder = await call(make)
        played, envs = await _played(builder, begun, call, asker, tolerance, failures, seed, max_turns, tell)
        if isinstance(played, Failure):
            return Group(failures=failures, failure=played)
        rewards, metrics = await call(_rewards, builder, played, envs)
        tags = await call(_tags, builder)
    except (ForeignFailure, BridgeError) as error:
        failure = _failure(error)
        failures[failure.kind] += 1
        return Group(failures=failures, failure=failure)
    return Group(rollouts=played, rewards=rewards, metrics=metrics, tags=tags, failures=failures)


async def _played(
    builder: GroupBuilder,
    course: GroupState,
    call: EnvironmentCaller,
    asker: EpisodeCalls,
    tolerance: FailurePolicy,
    failures: collections.Counter[str],
    seed: int,
    max_turns: int,
    tell: Callable[[GroupState], None],
) -> tuple[list[Rollout] | Failure, list[Env]]:
    current, stand = dict[int, Env](), dict[int, Rollout]()
    following: GroupState | Failure | None = course
    while isinstance(following, GroupState):
        made = await call(_envs, builder)
        course = following
        if not course.size:
            places = tuple(range(len(made)))
            course = dataclasses.replace(course, size=len(made), alive=places, todo=places)
        current |= _placed(course, made)
        tell(course)
        results = await _round(course.todo, current, call, asker, seed, course.round_, max_turns)
        failed = {index: result for index, result in results.items() if isinstance(result, Failure)}
        failures.update(failure.kind for failure in failed.values())
        stand |= {index: result for index, result in results.items() if isinstance(result, Rollout)}
        following = course.after(failed, tolerance)
    if following is not None:
        return following, []
    tell(dataclasses.replace(course, todo=(), failures=dict(failures)))
    order = sorted(stand)
    return [stand[index] for index in order], [current[index] for index in order]


def _placed(course: GroupState, made: Sequence[Env]) -> dict[int, Env]:
    if len(made) < len(course.todo):
        raise ForeignFailure(
            Reason.BAD_ENVIRONMENT, f"made {len(made)} environments, but {len(course.todo)} are needed"
        )
    # A builder that makes only the missing environments has no indices; no two rollouts share an environment.
    places = course.todo if len(made) == course.size else range(len(course.todo))
    return {index: made[place] for index, place in zip(course.todo, places, strict=True)}


def _floor(tolerance: FailurePolicy, size: int) -> int:
    if tolerance.strategy is not Strategy.MIN_VIABLE_GROUP:
        return size
    return math.ceil(VIABLE_SHARE * size) if tolerance.min_successful is None else tolerance.min_successful


def _again(failed: Mapping[int, Failure], strategy: Strategy, retries: int, missing: int) -> list[int]:
    """Which rollouts are repeated."""
    useful = [index for index in sorted(failed) if not failed[index].final]
    if missing <= 0 or strategy is Strategy.FAIL_FAST:
        return []
    if strategy is Strategy.RETRY:
        return useful if len(useful) == len(failed) <= retries else []
    return useful[: min(missing, retries)]


def _of_group(failed: Mapping[int, Failure], stood: int, size: int, floor: int) -> Failure:
    if not failed:
        return Failure(kind=Reason.TOO_FEW_ROLLOUTS, message=f"{stood} of {size} rollouts succeeded, and {floor} must")
    # A failed rollout, not one without a verdict, decides the verdict of the group.
    errors = [index for index in failed if failed[index].verdict is Verdict.ERROR]
    index = min(errors or failed)
    message = f"{stood} of {size} rollouts succeeded; rollout {index} failed: {failed[index].message}"
    return dataclasses.replace(failed[index], message=message)


async def _round(
    todo: Sequence[int],
    envs: dict[int, Env],
    call: EnvironmentCaller,
    asker: EpisodeCalls,
    seed: int,
    round_: int,
    max_turns: int,
) -> dict[int, Rollout | Failure]:
    async def one(index: int) -> Rollout | Failure:
        def of_turn(turn: int) -> int:
            return seed_of(seed, index, round_, turn)

        try:
            return await play(envs[index], call, asker, seed=of_turn, max_turns=max_turns)
        except Cancelled:
            raise
        except (ForeignFailure, Ungraded, BridgeError) as error:
            return _failure(error)

    # All of them end before an error is raised: none continues alone.
    found = await asyncio.gather(*map(one, todo), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return {index: result for index, result in zip(todo, found, strict=True) if not isinstance(result, BaseException)}


def _failure(error: ForeignFailure | Ungraded | BridgeError) -> Failure:
    if isinstance(error, Cancelled):
        raise error
    if isinstance(error, Ungraded):
        told = error.problem
        return Failure(
            kind=told.reason, message=told.message, verdict=error.verdict, retryable=told.retryable, final=True
        )
    if isinstance(error, ForeignFailure):
        return Failure(kind=error.kind, message=error.message, final=error.kind == Reason.BAD_ENVIRONMENT)
    hopeless = isinstance(error, InvalidField | FailedPrecondition)
    return Failure(kind=error.reason, message=error.message, retryable=error.retryable, final=hopeless)


async def _envs(builder: GroupBuilder) -> list[Env]:
    made: Any = await builder.make_envs()
    if not isinstance(made, Iterable):
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"made a {type(made).__name__}, not environments")
    envs = list(made)
    if not 1 <= len(envs) <= MAX_GROUP_SIZE:
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"made {len(envs):,} environments, not 1 to {MAX_GROUP_SIZE}")
    return envs


async def _rewards(
    builder: Any, rollouts: list[Rollout], envs: list[Env]
) -> tuple[list[float], list[dict[str, float]]]:
    compute = getattr(builder, "compute_group_rewards", None)
    if compute is None:
        return [0.0] * len(rollouts), [{} for _ in rollouts]
    pairs = list(await compute(rollouts, envs))
    if len(pairs) != len(rollouts) or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        message = f"gave {len(pairs)} group rewards, not a reward with metrics for each of {len(rollouts)} rollouts"
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
    for turn in [turn for rollout in rollouts for turn in rollout.transitions]:
        # The code may have changed them, which counts.
        turn.reward, turn.metrics = finite(turn.reward, "the reward"), numbers_of(turn.metrics, "turn's")
    rewards = [finite(reward, "the group's reward") for reward, _ in pairs]
    return rewards, [numbers_of(metrics, "group's") for _, metrics in pairs]


async def _tags(builder: Any) -> tuple[str, ...]:
    tell = getattr(builder, "logging_tags", None)
    if tell is None:
        return ()
    given = tell()
    tags = await given if inspect.isawaitable(given) else given
    plain = isinstance(tags, Collection) and not isinstance(tags, str)
    if not plain or not all(isinstance(tag, str) and 0 < len(tag) <= MAX_NAME_CHARS for tag in tags):
        message = f"gave tags that are not a list of texts of 1 to {MAX_NAME_CHARS} characters"
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
    if len(tags) > MAX_TAGS or len(set(tags)) != len(tags):
        raise ForeignFailure(
            Reason.BAD_ENVIRONMENT, f"gave {len(tags)} tags, of which some are equal, or more than {MAX_TAGS}"
        )
    if _ALL in tags:
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"gave the tag {_ALL!r}, which stands for every group")
    return tuple(tags)
