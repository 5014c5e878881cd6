"""Packing trajectories of tinker-cookbook's shape into columns."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ModelInput, Trajectory, TrajectoryBatch, TrajectoryGroup, Transition
from tests.tables import rows
from tests.unit.bridge.strategies import groups, plain

Thing = types.SimpleNamespace


def transition(actions: int, observed: Any = 2, reward: float = 0.0, **metrics: Any) -> Any:
    """A turn with so many action tokens."""
    observation = Thing(length=observed) if isinstance(observed, int) else observed
    return Thing(ob=observation, ac=Thing(tokens=[0] * actions), reward=reward, episode_done=False, metrics=metrics)


def group(*trajectories: list[Any], final: list[Any] | None = None, metrics: list[Any] | None = None) -> Any:
    """A group of trajectories, each a list of turns."""
    return Thing(
        trajectories_G=[Thing(transitions=turns, final_ob=None) for turns in trajectories],
        final_rewards_G=[0.0] * len(trajectories) if final is None else final,
        metrics_G=[{}] * len(trajectories) if metrics is None else metrics,
    )


def test_columns_are_in_the_order_of_the_objects():
    """Groups, their trajectories, and their turns, one after the other."""
    groups = [
        group([transition(1, reward=0.5), transition(2, 3)], [transition(3)], final=[1.0, 2.0]),
        group(),
        group([], [transition(4, 5, reward=-1.0)]),
    ]

    batch = TrajectoryBatch.of(groups, [["a", "b"], [], ["b"]])

    assert batch.trajectories_per_group.tolist() == [2, 0, 2]
    assert batch.transitions_per_trajectory.tolist() == [2, 1, 0, 1]
    assert batch.action_tokens.tolist() == [1, 2, 3, 4]
    assert batch.observation_tokens.tolist() == [2, 3, 2, 5]
    assert batch.rewards.tolist() == [0.5, 0.0, 0.0, -1.0]
    assert batch.final_rewards.tolist() == [1.0, 2.0, 0.0, 0.0]
    assert batch.tags == (("a", "b"), (), ("b",))


def test_a_metric_that_some_lack_says_who_has_it():
    """A column has a value for everybody; where one is missing, another column tells."""
    turns = [transition(1, m=1, every=True), transition(1, every=2.0), transition(1, m=3.5, every=np.float32(0.5))]

    batch = TrajectoryBatch.of([group(turns, metrics=[{"final": 7}])])

    assert batch.transition_metrics["m"][[0, 2]].tolist() == [1.0, 3.5]
    assert batch.transition_metrics["every"].tolist() == [1.0, 2.0, 0.5]
    assert {key: flags.tolist() for key, flags in batch.transition_metric_present.items()} == {"m": [True, False, True]}
    assert batch.trajectory_metrics["final"].tolist() == [7.0]
    assert batch.trajectory_metric_present == {}


def test_a_metric_that_is_none_is_absent():
    """None says that there is nothing, as a missing key does."""
    turns = [transition(1, m=None, never=None), transition(1, m=2.0, never=None)]

    batch = TrajectoryBatch.of([group(turns, metrics=[{"final": None}])])

    assert batch.transition_metrics.keys() == {"m"}
    assert batch.transition_metrics["m"][1] == 2.0
    assert batch.transition_metric_present["m"].tolist() == [False, True]
    assert batch.trajectory_metrics == {}


def test_observations_and_actions_may_be_tokens():
    """Lists, our ModelInput, and objects that tell their length."""
    turns = [
        transition(1, [1, 2, 3]),
        transition(1, ModelInput.of([1, 2])),
        transition(1, Thing(length=4, tokens=None)),
    ]
    turns[0].ac = [5, 6]

    batch = TrajectoryBatch.of([group(turns[:2])])

    assert batch.observation_tokens.tolist() == [3, 2]
    assert batch.action_tokens.tolist() == [2, 1]
    assert TrajectoryBatch.of([group(turns[2:])]).observation_tokens.tolist() == [4]


def test_nothing_is_a_batch_too():
    """What it means is for the worker to say."""
    batch = TrajectoryBatch.of([])

    assert batch.trajectories_per_group.size == batch.rewards.size == 0
    assert batch.trajectories_per_group.dtype == np.int32


@rows(
    ("groups", "tags", "match"),
    [
        ([group(), group([], final=[])], (), r"trajectory_groups\[1\]\.final_rewards_G has 0 entries for 1"),
        ([group([], metrics=[{}, {}])], (), r"trajectory_groups\[0\]\.metrics_G has 2 entries for 1"),
        ([group([transition(1, m="high")])], (), 'metric "m" that is not a number'),
        ([group([transition(1, m=[1.0, 2.0])])], (), 'metric "m" that is an array'),
        ([group([transition(1, reward="x")])], (), "reward that is not a number"),  # type: ignore[arg-type]
        ([group()], ["math"], r"tags\[0\] is the text 'math'"),
    ],
)
def test_what_does_not_fit_is_refused(groups: list[Any], tags: Any, match: str):
    """With what is wrong, before anything is sent."""
    with pytest.raises(InvalidField, match=match):
        TrajectoryBatch.of(groups, tags)


def _cookbook(ours: TrajectoryGroup) -> Any:
    """The same rollouts in tinker-cookbook's shape."""
    turns = [
        [
            Thing(
                ob=Thing(length=turn.observation_tokens),
                ac=Thing(tokens=range(turn.action_tokens), prompt_cache_hit_tokens=turn.cached_observation_tokens),
                reward=turn.reward,
                metrics=turn.metrics,
            )
            for turn in trajectory.transitions
        ]
        for trajectory in ours.trajectories
    ]
    final = [trajectory.final_reward for trajectory in ours.trajectories]
    return group(*turns, final=final, metrics=[trajectory.metrics for trajectory in ours.trajectories])


@given(st.lists(groups, max_size=3))
def test_rollouts_of_results_are_packed_like_objects_of_that_shape(given_groups: list[TrajectoryGroup]):
    """Column by column, and bit by bit; without a tag anywhere there are none."""
    tags = [each.tags for each in given_groups]

    ours = TrajectoryBatch.of_groups(given_groups)
    theirs = TrajectoryBatch.of(map(_cookbook, given_groups), tags if any(tags) else ())

    assert plain(ours) == plain(theirs)


def test_tags_stand_with_each_group():
    """One without a tag beside one with has none."""
    turn = Transition(observation_tokens=1, action_tokens=2, reward=0.5)
    trajectories = (Trajectory(transitions=(turn,)),)

    batch = TrajectoryBatch.of_groups(TrajectoryGroup(trajectories=trajectories, tags=tags) for tags in (("math",), ()))

    assert batch.tags == (("math",), ())
    assert batch.action_tokens.tolist() == [2, 2]
