"""A group of rollouts: what each strategy makes of failures, and what a group may give."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, Cancelled
from crucible_bridge.types import Problem, Verdict
from crucible_worker.evaluators.environments.episode import called_here
from crucible_worker.evaluators.environments.group import (
    MAX_GROUP_SIZE,
    MAX_TAGS,
    Failure,
    FailurePolicy,
    Group,
    GroupState,
    Strategy,
    Ungraded,
)
from crucible_worker.testing import ScriptedModel
from tests.tables import rows
from tests.unit.evaluators.environments.playing import Scripts, grouped, step

NO_LUCK = ValueError("no luck")


def _failing(*rounds: Sequence[int], error: BaseException = NO_LUCK) -> Callable[[int, int], Any]:
    """Steps of environments of which these fail, by how often environments were made."""

    def steps(made: int, index: int) -> Any:
        fails = made <= len(rounds) and index in rounds[made - 1]
        return lambda turn: error if fails else step(reward=float(index))

    return steps


def _rewards(group: Any) -> list[float]:
    return [rollout.transitions[-1].reward for rollout in group.rollouts]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_group_without_failures_stands(strategy: Strategy) -> None:
    """In the order of its environments, without rewards and tags where the builder has none."""
    group = await grouped(Scripts(_failing()), strategy)

    assert group.failure is None
    assert _rewards(group) == [0.0, 1.0, 2.0]
    assert (group.rewards, group.metrics, group.tags) == ([0.0] * 3, [{}] * 3, ())
    assert group.failures == Counter()


async def test_all_rollouts_of_a_group_are_under_way_together() -> None:
    """Environments that wait for each other come to their end."""
    barrier = asyncio.Barrier(3)

    class Waiting(Scripts):
        async def make_envs(self) -> Sequence[Any]:
            envs = await super().make_envs()
            for env in envs:
                env.initial_observation = self._wait
            return envs

        async def _wait(self) -> Any:
            await barrier.wait()
            return "go", ()

    assert len((await grouped(Waiting())).rollouts) == 3


@pytest.mark.parametrize(
    ("rounds", "max_retries", "made", "failed"),
    [
        ([[1]], 1, 2, 1),
        ([[0, 2], [2]], 3, 3, 3),
        ([[0, 2]], 2, 2, 2),
    ],
)
async def test_retry_makes_rollouts_again(rounds: list[list[int]], max_retries: int, made: int, failed: int) -> None:
    """With environments made anew, in their places; every failure is counted."""
    builder = Scripts(_failing(*rounds))

    group = await grouped(builder, Strategy.RETRY, max_retries=max_retries)

    assert group.failure is None
    assert _rewards(group) == [0.0, 1.0, 2.0]
    assert (builder.made, group.failures) == (made, Counter(ValueError=failed))


class Fewer(Scripts):
    """Makes three environments, then as many as it is told."""

    then: int = 2

    async def make_envs(self) -> Sequence[Any]:
        envs = await super().make_envs()
        self.size = self.then
        return envs


async def test_rollouts_that_are_made_again_share_no_environment() -> None:
    """Not even where another number of them is made then."""
    group = await grouped(Fewer(_failing([1, 2])), Strategy.RETRY)

    assert _rewards(group) == [0.0, 0.0, 1.0]


async def test_rollouts_need_an_environment_each() -> None:
    """Where fewer are made than are missing, the group falls."""
    builder = Fewer(_failing([1, 2]))
    builder.then = 1

    group = await grouped(builder, Strategy.RETRY)

    assert group.failure is not None
    assert group.failure.kind == "BAD_ENVIRONMENT"
    assert group.failure.message == "made 1 environments, but 2 are needed"


@pytest.mark.parametrize(("rounds", "max_retries", "failed"), [([[0, 2]], 1, 2), ([[1], [1]], 1, 2), ([[0]], 0, 1)])
async def test_retry_ends_where_too_many_fail(rounds: list[list[int]], max_retries: int, failed: int) -> None:
    """The group falls, and says how many stood and why the first one failed."""
    group = await grouped(Scripts(_failing(*rounds)), Strategy.RETRY, max_retries=max_retries)

    assert group.failure is not None
    assert (group.failure.kind, group.failure.verdict) == ("ValueError", Verdict.ERROR)
    assert group.failure.message.endswith("failed: ValueError: no luck")
    assert (list(group.rollouts), group.failures) == ([], Counter(ValueError=failed))


async def test_fail_fast_makes_nothing_again() -> None:
    """One failure, and the group falls."""
    builder = Scripts(_failing([1]))

    group = await grouped(builder, Strategy.FAIL_FAST)

    assert group.failure is not None
    assert group.failure.message == "2 of 3 rollouts succeeded; rollout 1 failed: ValueError: no luck"
    assert builder.made == 1


@rows(
    ("rounds", "least", "max_retries", "made", "rewards"),
    [
        ([[1]], 2, 3, 1, [0.0, 2.0]),
        ([[0, 1]], 2, 3, 2, [0.0, 2.0]),
        ([[0, 1], [0]], 2, 1, 2, None),
        ([[0, 1, 2], [0]], 2, 3, 3, [0.0, 1.0]),
        ([[0, 1, 2]], 1, 1, 2, [0.0]),
        ([[0]], None, 0, 1, None),
        ([[0]], None, 1, 2, [0.0, 1.0, 2.0]),
    ],
)
async def test_min_viable_group_goes_on_until_enough_stand(
    rounds: list[list[int]], least: int | None, max_retries: int, made: int, rewards: list[float] | None
) -> None:
    """As few are made again as are missing, the first ones first; of a group of 3, all have to stand unless told."""
    builder = Scripts(_failing(*rounds))

    group = await grouped(builder, Strategy.MIN_VIABLE_GROUP, min_successful=least, max_retries=max_retries)

    assert builder.made == made
    if rewards is None:
        assert group.failure is not None
    else:
        assert (group.failure, _rewards(group)) == (None, rewards)


async def test_a_group_of_too_few_environments_does_not_stand() -> None:
    """Where more have to stand than it makes, though none fails."""
    group = await grouped(Scripts(), Strategy.MIN_VIABLE_GROUP, min_successful=4)

    assert group.failure is not None
    assert (group.failure.kind, group.failure.message) == ("TOO_FEW_ROLLOUTS", "3 of 3 rollouts succeeded, and 4 must")
    assert not group.rollouts


async def test_a_rollout_that_is_made_again_has_other_seeds() -> None:
    """Of two tries and of two rollouts of a group none is sampled with the same seed."""
    seeds: list[int | None] = []

    class Model(ScriptedModel):
        @property
        def sampling(self) -> "Model":
            return self

        async def sample(self, prompt: Any, params: Any, num_samples: int = 1) -> Any:
            seeds.append(params.seed)
            return await super().sample(prompt, params, num_samples)

    await grouped(Scripts(_failing([0, 1, 2])), max_retries=3, model=Model())
    first = list(seeds)
    seeds.clear()
    await grouped(Scripts(_failing([0, 1, 2])), max_retries=3, model=Model())

    assert len(first) == len(set(first)) == 6
    assert sorted(map(str, seeds)) == sorted(map(str, first))


@pytest.mark.parametrize("verdict", [Verdict.UNDECIDED, Verdict.ERROR])
async def test_an_answer_that_nobody_could_grade_is_not_sampled_again(verdict: Verdict) -> None:
    """Else the answers that are graded would be those that suit the grader."""
    problem = Problem(reason="UNCLEAR", message="cannot tell")
    builder = Scripts(_failing([1], error=Ungraded(verdict, problem)))

    group = await grouped(builder, call=called_here)

    assert builder.made == 1
    assert group.failure is not None
    assert (group.failure.verdict, group.failure.kind) == (verdict, "UNCLEAR")


async def test_a_failure_of_the_model_is_counted_by_its_reason() -> None:
    """And its group may stand when the evaluation goes on later, if it says so."""
    model = ScriptedModel(fault=lambda call: BackendError("is down", reason="BACKEND_DOWN", retryable=True))

    group = await grouped(Scripts(size=1), max_retries=1, model=model)

    assert group.failure is not None
    assert (group.failure.kind, group.failure.retryable) == ("BACKEND_DOWN", True)
    assert group.failures == Counter(BACKEND_DOWN=2)


async def test_the_end_of_the_evaluation_is_no_failure() -> None:
    """It goes through, when every rollout has come to its end."""
    model = ScriptedModel(fault=lambda call: Cancelled("the evaluation has ended"))

    with pytest.raises(Cancelled):
        await grouped(Scripts(), model=model)


class Telling(Scripts):
    """A group with rewards and tags."""

    rewards: Any = ((0.5, {"rank": 1}), (0.25, {}), (0.0, {"rank": None}))
    tags: Any = ("math", "hard")
    envs: Any = None
    written: Any = None

    async def make_envs(self) -> Any:
        return await super().make_envs() if self.envs is None else self.envs

    async def compute_group_rewards(self, rollouts: Sequence[Any], envs: Sequence[Any]) -> Any:
        for name, value in (self.written or {}).items():
            setattr(rollouts[0].transitions[0], name, value)
        assert [len(rollout.transitions) for rollout in rollouts] == [len(env.taken) for env in envs]
        return self.rewards

    def logging_tags(self) -> Any:
        return self.tags


async def test_a_group_has_rewards_metrics_and_tags() -> None:
    """Of its rollouts, in their order."""
    group = await grouped(Telling())

    assert (group.rewards, group.metrics) == ([0.5, 0.25, 0.0], [{"rank": 1.0}, {}, {}])
    assert group.tags == ("math", "hard")


@rows(
    ("field", "value", "told"),
    [
        ("rewards", [(1.0, {})], "1 group rewards"),
        ("rewards", [1.0, 2.0, 3.0], "3 group rewards"),
        ("rewards", [(None, {})] * 3, "a NoneType as the group's reward"),
        ("rewards", [(1.0, {"total_turns": 1})] * 3, "'total_turns'"),
        ("tags", "math", "not a list of texts"),
        ("tags", None, "not a list of texts"),
        ("tags", ["a", 1], "not a list of texts"),
        ("tags", [""], "not a list of texts"),
        ("tags", ["x" * 201], "not a list of texts"),
        ("tags", ["a", "b", "a"], "some are equal"),
        ("tags", [str(index) for index in range(MAX_TAGS + 1)], "33 tags"),
        ("tags", ["a", "all"], "stands for every group"),
        ("envs", 3, "made a int, not environments"),
        ("written", {"metrics": {"reward/total": 1.0}}, "'reward/total', which is a built-in key"),
        ("written", {"reward": "1"}, "a str as the reward"),
        ("size", 0, "made 0 environments"),
        ("size", MAX_GROUP_SIZE + 1, "made 257 environments"),
    ],
)
async def test_what_no_group_may_give_is_its_mistake(field: str, value: Any, told: str) -> None:
    """It is told, counted, and fails the group."""
    builder = Telling()
    setattr(builder, field, value)

    group = await grouped(builder)

    assert group.failure is not None
    assert group.failure.kind == "BAD_ENVIRONMENT"
    assert told in group.failure.message
    assert group.failures == Counter(BAD_ENVIRONMENT=1)


LOST = Failure(kind="ENDED", message="ended", retryable=True)


def _course(*alive: int, retries: int) -> GroupState:
    """The second round of a group of four: the first rollout stands, and two are made again."""
    return GroupState(size=4, alive=alive, todo=(1, 3), round_=1, retries=retries, failures={"ValueError": 3})


@rows(
    ("strategy", "alive", "retries", "todo"),
    [
        (Strategy.RETRY, (0, 1, 2, 3), 4, (0, 1, 2, 3)),
        (Strategy.RETRY, (0, 1, 2, 3), 3, None),
        (Strategy.MIN_VIABLE_GROUP, (0, 1, 3), 3, (0, 1)),
        (Strategy.MIN_VIABLE_GROUP, (0, 1, 3), 1, (0,)),
        (Strategy.MIN_VIABLE_GROUP, (0, 1, 3), 0, None),
        (Strategy.FAIL_FAST, (0, 1, 2, 3), 4, None),
    ],
)
def test_what_is_lost_is_made_again_or_not(
    strategy: Strategy, alive: tuple[int, ...], retries: int, todo: tuple[int, ...] | None
) -> None:
    """Rollouts that stood have failed as well; one that was left out is not made again."""
    tolerance = FailurePolicy(strategy=strategy, max_retries=9, min_successful=2)

    following = _course(*alive, retries=retries).lost(LOST, tolerance)

    assert following.failures == {"ValueError": 3, "ENDED": len(alive)}
    if todo is None:
        assert isinstance(following, Group)
        assert following.failure is not None
        assert (following.failure.kind, following.failure.retryable) == ("ENDED", True)
    else:
        assert isinstance(following, GroupState)
        assert (following.todo, following.alive, following.round_) == (todo, todo, 2)
        assert following.retries == retries - len(todo)


def test_what_is_lost_when_all_is_played_fails_the_group() -> None:
    """Once: no rollout has failed."""
    played = dataclasses.replace(_course(0, 1, 2, 3, retries=3), todo=())

    following = played.lost(LOST, FailurePolicy(strategy=Strategy.RETRY, max_retries=3, min_successful=None))

    assert isinstance(following, Group)
    assert (following.failure, following.failures) == (LOST, Counter(ValueError=3, ENDED=1))


async def test_a_group_goes_on_elsewhere() -> None:
    """With the rollouts that are left to make, their seeds and what has failed before; it says how far it is."""
    told: list[GroupState] = []
    builder = Scripts(_failing([1]), size=4)

    group = await grouped(
        builder, Strategy.MIN_VIABLE_GROUP, min_successful=2, course=_course(1, 3, retries=3), tell=told.append
    )

    assert _rewards(group) == [1.0, 3.0]
    assert group.failures == Counter(ValueError=4)
    assert [(course.todo, course.round_, course.retries) for course in told] == [
        ((1, 3), 1, 3),
        ((1,), 2, 2),
        ((), 2, 2),
    ]
