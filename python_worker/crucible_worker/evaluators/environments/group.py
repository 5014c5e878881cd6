"""The rollouts of one problem, all at once as they may depend on each other, and what becomes of those that fail.

    fail_fast           a failed rollout fails its group, and with it the evaluator
    retry               so many failed rollouts of a group are made again; one more fails the group
    min_viable_group    so many are made again until enough stand; the others are left out

As tinker-cookbook's FailFast, RetryOnFailure and MinViableGroup; but that rollouts are made again in rounds, when all
others of the group have ended, so that the same ones are on every attempt.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.types import Problem, Verdict
from crucible_worker.evaluators.environments.base import Env, GroupBuilder, Rollout
from crucible_worker.evaluators.environments.budgets import BAD_ENVIRONMENT
from crucible_worker.evaluators.environments.episode import (
    MAX_NAME_CHARS,
    Asker,
    Caller,
    finite,
    numbers_of,
    play,
    seed_of,
)
from crucible_worker.evaluators.environments.own_loop import ForeignFailure

__all__ = [
    "MAX_GROUP_SIZE",
    "MAX_TAGS",
    "TOO_FEW_ROLLOUTS",
    "VIABLE_SHARE",
    "Failure",
    "Group",
    "Strategy",
    "Tolerance",
    "Ungraded",
    "run",
]

MAX_GROUP_SIZE = 256
"""Environments of one group."""
MAX_TAGS = 32
"""Tags of one group."""
VIABLE_SHARE = 0.75
"""Of a group's rollouts, rounded up: how many have to stand, where nobody says."""

TOO_FEW_ROLLOUTS = "TOO_FEW_ROLLOUTS"
"""Of a group that makes fewer environments than have to stand."""

_ALL = "all"


class Strategy(enum.StrEnum):
    """What becomes of rollouts that fail; see the module."""

    FAIL_FAST = "fail_fast"
    RETRY = "retry"
    MIN_VIABLE_GROUP = "min_viable_group"


class Ungraded(Exception):
    """A grader came to no verdict; asked again, the model would be graded on the answers that suit the grader."""

    def __init__(self, verdict: Verdict, problem: Problem) -> None:
        """Take UNDECIDED or ERROR, and why."""
        super().__init__(problem.message)
        self.verdict = verdict
        self.problem = problem


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How failures are borne."""

    strategy: Strategy
    """What becomes of rollouts that fail."""
    max_retries: int
    """Rollouts of a group that are made again."""
    min_successful: int | None
    """Rollouts that make a group; None for `VIABLE_SHARE` of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a rollout failed, or what comes before and behind all of them."""

    kind: str
    """What it is counted by: the name of an exception's class, or a reason."""
    message: str
    """What was said."""
    verdict: Verdict = Verdict.ERROR
    """What it makes of its group: UNDECIDED where nothing but a verdict is missing."""
    retryable: bool = False
    """Whether the group may stand when its evaluation goes on later."""
    final: bool = False
    """Whether another rollout is of no use."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What became of a group."""

    rollouts: Sequence[Rollout] = ()
    """Those that stand, in the order of their environments."""
    rewards: Sequence[float] = ()
    """What each is worth beside its turns."""
    metrics: Sequence[dict[str, float]] = ()
    """Further numbers of each."""
    tags: tuple[str, ...] = ()
    """The group's."""
    failures: collections.Counter[str]
    """Rollouts that failed, by kind, those that were made again included; so is what failed the group as a whole."""
    failure: Failure | None = None
    """Why the group does not stand."""


async def run(
    make: Callable[[], GroupBuilder], call: Caller, asker: Asker, tolerance: Tolerance, *, seed: int, max_turns: int
) -> Group:
    """Make the rollouts of one problem.

    Args:
        make: makes the problem.
        call: where that, and all that comes of it, may run.
        asker: the model.
        tolerance: what becomes of rollouts that fail.
        seed: of the whole group.
        max_turns: of one rollout.

    Raises:
        Cancelled: the evaluation has ended.
    """
    failures: collections.Counter[str] = collections.Counter()
    try:
        builder: GroupBuilder = await call(make)
        envs = await call(_envs, builder)
        played, envs = await _played(builder, envs, call, asker, tolerance, failures, seed, max_turns)
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
    envs: Sequence[Env],
    call: Caller,
    asker: Asker,
    tolerance: Tolerance,
    failures: collections.Counter[str],
    seed: int,
    max_turns: int,
) -> tuple[list[Rollout] | Failure, list[Env]]:
    current, stand = dict(enumerate(envs)), dict[int, Rollout]()
    floor = _floor(tolerance, len(envs))
    retries, round_ = tolerance.max_retries, 0
    todo = sorted(current)
    while todo:
        results = await _round(todo, current, call, asker, seed, round_, max_turns)
        failed = {index: result for index, result in results.items() if isinstance(result, Failure)}
        failures.update(failure.kind for failure in failed.values())
        stand |= {index: result for index, result in results.items() if isinstance(result, Rollout)}
        todo = _again(failed, tolerance.strategy, retries, floor - len(stand))
        if not todo and len(stand) < floor:
            return _of_group(failed, len(stand), len(envs), floor), []
        if todo:
            retries, round_ = retries - len(todo), round_ + 1
            fresh = await call(_envs, builder)
            # One that makes only what is left to do has no places; no two rollouts share an environment.
            places = todo if len(fresh) == len(envs) else range(len(todo))
            if len(fresh) < len(todo):
                raise ForeignFailure(BAD_ENVIRONMENT, f"made {len(fresh)} environments, and {len(todo)} are missing")
            current |= {index: fresh[place] for index, place in zip(todo, places, strict=True)}
    order = sorted(stand)
    return [stand[index] for index in order], [current[index] for index in order]


def _floor(tolerance: Tolerance, size: int) -> int:
    if tolerance.strategy is not Strategy.MIN_VIABLE_GROUP:
        return size
    return math.ceil(VIABLE_SHARE * size) if tolerance.min_successful is None else tolerance.min_successful


def _again(failed: dict[int, Failure], strategy: Strategy, retries: int, missing: int) -> list[int]:
    """Which rollouts are made again."""
    useful = [index for index in sorted(failed) if not failed[index].final]
    if missing <= 0 or strategy is Strategy.FAIL_FAST:
        return []
    if strategy is Strategy.RETRY:
        return useful if len(useful) == len(failed) <= retries else []
    return useful[: min(missing, retries)]


def _of_group(failed: dict[int, Failure], stood: int, size: int, floor: int) -> Failure:
    if not failed:
        return Failure(kind=TOO_FEW_ROLLOUTS, message=f"{stood} of {size} rollouts stand, and {floor} have to")
    # One that failed, not one without a verdict, says what the group is.
    errors = [index for index in failed if failed[index].verdict is Verdict.ERROR]
    index = min(errors or failed)
    message = f"{stood} of {size} rollouts stand; rollout {index} failed: {failed[index].message}"
    return dataclasses.replace(failed[index], message=message)


async def _round(
    todo: Sequence[int],
    envs: dict[int, Env],
    call: Caller,
    asker: Asker,
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

    # All of them come to their end before anything is raised: none goes on alone.
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
        return Failure(kind=error.kind, message=error.message, final=error.kind == BAD_ENVIRONMENT)
    hopeless = isinstance(error, InvalidField | FailedPrecondition)
    return Failure(kind=error.reason, message=error.message, retryable=error.retryable, final=hopeless)


async def _envs(builder: GroupBuilder) -> list[Env]:
    made: Any = await builder.make_envs()
    if not isinstance(made, Iterable):
        raise ForeignFailure(BAD_ENVIRONMENT, f"made a {type(made).__name__}, not environments")
    envs = list(made)
    if not 1 <= len(envs) <= MAX_GROUP_SIZE:
        raise ForeignFailure(BAD_ENVIRONMENT, f"made {len(envs):,} environments, not 1 to {MAX_GROUP_SIZE}")
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
        raise ForeignFailure(BAD_ENVIRONMENT, message)
    for turn in [turn for rollout in rollouts for turn in rollout.transitions]:
        # They may have been written to, which counts.
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
        message = f"gave tags that are no list of texts of 1 to {MAX_NAME_CHARS} characters"
        raise ForeignFailure(BAD_ENVIRONMENT, message)
    if len(tags) > MAX_TAGS or len(set(tags)) != len(tags):
        raise ForeignFailure(BAD_ENVIRONMENT, f"gave {len(tags)} tags, of which some are equal or above {MAX_TAGS}")
    if _ALL in tags:
        raise ForeignFailure(BAD_ENVIRONMENT, f"gave the tag {_ALL!r}, which stands for every group")
    return tuple(tags)
