"""Rollouts of a sample: what is kept of a turn, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from crucible_bridge import codec
from crucible_bridge.codec import trajectory_group_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ImageChunk,
    ModelInput,
    SampledSequence,
    SampleResult,
    TokensChunk,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from tests.tables import rows
from tests.unit.bridge import strategies as some

ANSWER = SampledSequence(text="ab", tokens=(7, 8), logprobs=(-0.5, -0.25), stop_reason="length")


def a_turn(**fields: Any) -> Transition:
    """A turn of two tokens seen and one generated."""
    return Transition(**{"observation_tokens": 2, "action_tokens": 1, "reward": 1.0, **fields})


def one(**fields: Any) -> TrajectoryGroup:
    """A group of one rollout with one turn."""
    return TrajectoryGroup(trajectories=(Trajectory(transitions=(a_turn(**fields),)),))


def test_a_turn_keeps_counts_and_tokens_where_they_are_asked_for():
    """Counts, reward and stop reason always; tokens as int32 and log-probabilities as float32 with intermediates."""
    asked = ModelInput.of([1, 2, 3])

    counted = Transition.of(asked, ANSWER, reward=0.5, intermediates=False)
    kept = Transition.of(asked, ANSWER, reward=0.5, metrics={"steps": 2.0}, intermediates=True)

    assert (counted.observation_tokens, counted.action_tokens, counted.reward) == (3, 2, 0.5)
    assert (counted.observation, counted.action, counted.action_logprobs) == (None, None, None)
    assert kept.stop_reason == "length"
    assert kept.metrics == {"steps": 2.0}
    arrays = (kept.observation, kept.action, kept.action_logprobs)
    assert [some.plain(array) for array in arrays] == [
        some.plain(array)
        for array in (np.array([1, 2, 3], "<i4"), np.array([7, 8], "<i4"), np.array([-0.5, -0.25], "<f4"))
    ]


def test_a_turn_without_log_probabilities_keeps_its_tokens():
    """A backend that tells none leaves them absent, never zero."""
    kept = Transition.of(ModelInput.of([1]), SampledSequence(text="a", tokens=(7,)), reward=0.0, intermediates=True)

    assert kept.action_logprobs is None
    assert kept.action is not None


def test_an_image_is_counted_and_not_kept_as_tokens():
    """It takes the tokens that it says; where it says none, nobody can count them."""
    image = ImageChunk(data=b"", format="png", expected_tokens=5)
    text = TokensChunk(tokens=np.array([1, 2]))

    kept = Transition.of(ModelInput((text, image)), ANSWER, reward=0.0, intermediates=True)

    assert (kept.observation_tokens, kept.observation) == (7, None)
    with pytest.raises(InvalidField, match="does not say how many tokens"):
        Transition.of(ModelInput((ImageChunk(data=b"", format="png"),)), ANSWER, reward=0.0, intermediates=False)


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (SampledSequence(text="ab", tokens=(), token_count=2), "action"),
        (SampledSequence(text="ab", tokens=(7, 8), logprobs=(-0.5,)), "transition.action_logprobs"),
    ],
)
def test_tokens_that_are_not_told_cannot_be_kept(answer: SampledSequence, field: str):
    """An answer that tells a number alone, or not as many log-probabilities as tokens, is refused, not padded."""
    with pytest.raises(InvalidField) as caught:
        Transition.of(ModelInput.of([1]), answer, reward=0.0, intermediates=True)

    assert caught.value.field == field


def test_the_reward_of_a_rollout_is_the_sum_of_its_turns_and_its_own():
    """Rounded once, in whatever order the numbers stand."""
    turns = (a_turn(reward=1e16), a_turn(reward=1.0), a_turn(reward=-1e16))

    assert Trajectory(transitions=turns, final_reward=0.5).total_reward == 1.5


@rows(
    ("group", "field"),
    [
        (one(reward=float("nan")), "g.trajectories[0].transitions[0].reward"),
        (one(metrics={"m": float("inf")}), "g.trajectories[0].transitions[0].metrics.m"),
        (one(metrics={"\ud800": 1.0}), "g.trajectories[0].transitions[0]"),
        (one(action_tokens=-1), "g.trajectories[0].transitions[0].action_tokens"),
        (one(observation_tokens=2**31), "g.trajectories[0].transitions[0].observation_tokens"),
        (one(observation=np.zeros(1, np.int32)), "g.trajectories[0].transitions[0].observation"),
        (one(action=np.zeros(1, np.int64)), "g.trajectories[0].transitions[0].action"),
        (one(action=np.zeros((1, 1), np.int32)), "g.trajectories[0].transitions[0].action"),
        (one(action_logprobs=np.zeros(1, np.float32)), "g.trajectories[0].transitions[0].action"),
        (TrajectoryGroup(trajectories=(Trajectory(transitions=(), final_reward=float("inf")),)), ".final_reward"),
        (TrajectoryGroup(trajectories=(Trajectory(transitions=(), metrics={"m": float("nan")}),)), ".metrics.m"),
        (TrajectoryGroup(trajectories=(), tags=("\udfff",)), "g"),
    ],
)
def test_what_does_not_fit_is_named(group: TrajectoryGroup, field: str):
    """Numbers are finite, arrays as long as they are said to be, texts Unicode."""
    with pytest.raises(InvalidField) as caught:
        group.checked("g")

    assert caught.value.field.endswith(field)


def test_what_is_right_is_handed_back():
    """The bounds themselves are within them."""
    group = one(
        observation=np.zeros(2, np.int32), action=np.zeros(1, np.int32), action_logprobs=np.zeros(1, np.float32)
    )

    assert group.checked("g") is group
    assert one(observation_tokens=2**31 - 1, action_tokens=0).checked("g")


@settings(deadline=None)
@given(some.groups)
def test_the_size_is_no_less_than_that_of_the_message(group: TrajectoryGroup):
    """What the bound of a group allows, a page has room for."""
    assert group.size >= trajectory_group_to_v1(group).ByteSize()


@rows(
    ("change", "field"),
    [
        (lambda turn: turn.observation.ClearField("data"), "observation"),
        (lambda turn: turn.action.shape.append(1), "action"),
        (lambda turn: setattr(turn, "action_tokens", 3), "action"),
        (lambda turn: setattr(turn.action_logprobs, "dtype", turn.action.dtype), "action_logprobs"),
        (lambda turn: setattr(turn.action_logprobs, "dtype", codec.tensor_to_v1(BF16).dtype), "action_logprobs"),
        (lambda turn: setattr(turn, "reward", float("inf")), "reward"),
    ],
)
def test_a_malformed_message_is_refused_at_its_field(change: Callable[[Any], Any], field: str):
    """A worker of another version cannot hand over arrays that do not fit their counts."""
    group = one(
        observation=np.zeros(2, np.int32), action=np.zeros(1, np.int32), action_logprobs=np.zeros(1, np.float32)
    )
    result = SampleResult(evaluator="e", sample_id="s", verdict=Verdict.MEASURED, score=1.0, group=group)
    message = codec.sample_result_to_v1(result)
    change(message.group.trajectories[0].transitions[0])

    with pytest.raises(InvalidField) as caught:
        codec.sample_result_from_v1(message, "samples[0]")

    assert caught.value.field.startswith(f"samples[0].group.trajectories[0].transitions[0].{field}")


BF16 = some.Tensor(dtype=some.Dtype.BF16, shape=(2,), data=b"\0" * 4)
