"""Rollouts of samples as padded arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.rollouts import pad_rollouts
from crucible_bridge.types import SampleResult, Trajectory, TrajectoryGroup, Transition, Verdict
from tests.tables import rows

PAD = 99


def turn(seen: list[int], done: list[int], *, reward: float = 1.0, logprobs: bool = True) -> Transition:
    """A turn with its tokens; token t has log-probability -t."""
    return Transition(
        observation_tokens=len(seen),
        action_tokens=len(done),
        reward=reward,
        observation=np.array(seen, np.int32),
        action=np.array(done, np.int32),
        action_logprobs=-np.array(done, np.float32) if logprobs else None,
    )


def result(sample_id: str, *turns: Transition, repeat: int = 0, **fields: Any) -> SampleResult:
    """A scored result of one rollout."""
    group = TrajectoryGroup(trajectories=(Trajectory(transitions=turns),))
    return SampleResult(
        **{
            "evaluator": "rollout",
            "sample_id": sample_id,
            "repeat": repeat,
            "verdict": Verdict.CORRECT,
            "score": 1.0,
            "group": group,
            **fields,
        }
    )


def unscored(sample_id: str, repeat: int = 0) -> SampleResult:
    """A result without a score."""
    return SampleResult(evaluator="rollout", sample_id=sample_id, repeat=repeat, verdict=Verdict.ERROR)


def test_rows_are_padded_on_the_left():
    """Prompt and answer end together; masks tell what was generated, and what is no padding."""
    batch = pad_rollouts([result("a", turn([1, 2], [3])), result("b", turn([4], [5, 6, 7], reward=0.0))], pad_token=PAD)

    assert batch.tokens.tolist() == [[PAD, 1, 2, 3], [4, 5, 6, 7]]
    assert batch.action_mask.tolist() == [[False, False, False, True], [False, True, True, True]]
    assert batch.padding_mask.tolist() == [[False, True, True, True], [True, True, True, True]]
    assert batch.logprobs.tolist() == [[0, 0, 0, -3], [0, -5, -6, -7]]
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.sample_ids == ("a", "b")
    dtypes = [array.dtype for array in (batch.tokens, batch.action_mask, batch.padding_mask, batch.logprobs)]
    assert dtypes == [np.int32, np.bool_, np.bool_, np.float32]


def test_rows_are_padded_on_the_right():
    """Prompts begin together."""
    batch = pad_rollouts([result("a", turn([1], [3])), result("b", turn([4], [5, 6]))], padding="right", pad_token=PAD)

    assert batch.tokens.tolist() == [[1, 3, PAD], [4, 5, 6]]
    assert batch.padding_mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.action_mask.tolist() == [[False, True, False], [False, True, True]]


def test_an_answer_without_a_score_keeps_its_row():
    """Its reward is NaN, not 0, so that a prompt keeps its number of rows and its mean is of those that count."""
    batch = pad_rollouts(
        [
            result("a", turn([1], [2])),
            unscored("a", 1),
            unscored("b"),
            result("b", turn([3], [4], reward=0.5), repeat=1),
        ]
    )
    rewards = batch.rewards.reshape(-1, 2)

    assert np.isnan(rewards).tolist() == [[False, True], [True, False]]
    assert np.nanmean(rewards, axis=1).tolist() == [1.0, 0.5]
    assert batch.scored.tolist() == [True, False, False, True]
    assert batch.groups.tolist() == [0, 0, 1, 1]
    assert not batch.padding_mask[1].any()
    assert not batch.action_mask[2].any()


def test_turns_that_go_on_are_one_sequence():
    """What a later turn saw begins with all that came before; only what the model generated is an action."""
    turns = (turn([1], [2], reward=0.25), turn([1, 2, 7], [3], reward=0.5))

    batch = pad_rollouts([result("a", *turns)])

    assert batch.tokens.tolist() == [[1, 2, 7, 3]]
    assert batch.action_mask.tolist() == [[False, True, False, True]]
    assert batch.rewards.tolist() == [0.75]


def test_several_rollouts_of_a_result_are_several_rows():
    """In their order, all of one group; the final reward counts."""
    group = TrajectoryGroup(
        trajectories=tuple(
            Trajectory(transitions=(turn([1], [token]),), final_reward=reward) for token, reward in ((2, 0.0), (3, 1.0))
        )
    )

    batch = pad_rollouts([result("a", group=group, verdict=Verdict.MEASURED)])

    assert batch.tokens.tolist() == [[1, 2], [1, 3]]
    assert batch.rewards.tolist() == [1.0, 2.0]
    assert batch.groups.tolist() == [0, 0]


def test_log_probabilities_that_nobody_told_are_not_zero():
    """They are NaN at the generated tokens."""
    batch = pad_rollouts([result("a", turn([1], [2], logprobs=False))])

    assert np.isnan(batch.logprobs).tolist() == [[False, True]]


def test_nothing_is_an_empty_batch():
    """Without results there are no rows."""
    batch = pad_rollouts([])

    assert batch.tokens.shape == (0, 0)
    assert batch.rewards.shape == (0,)


@rows(
    ("results", "field"),
    [
        ([result("a", turn([1], [2])), result("a", turn([1], [2]))], "results[1]"),
        ([result("a", group=None)], "results[0]"),
        (
            [result("a", Transition(observation_tokens=1, action_tokens=1, reward=0.0))],
            "results[0].group.trajectories[0].transitions[0]",
        ),
        (
            [result("a", turn([1], [2]), turn([1, 3], [4]))],
            "results[0].group.trajectories[0].transitions[1].observation",
        ),
    ],
)
def test_what_is_no_batch_is_refused(results: list[SampleResult], field: str):
    """Results of several evaluators, without tokens, or of turns that do not go on."""
    with pytest.raises(InvalidField) as caught:
        pad_rollouts(results)

    assert caught.value.field == field


def test_padding_is_at_one_of_two_ends():
    """Anything else is refused by name."""
    with pytest.raises(InvalidField) as caught:
        pad_rollouts([], padding="both")  # type: ignore[arg-type]

    assert caught.value.field == "padding"


tokens = st.lists(st.integers(0, 50), max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(tokens, tokens), max_size=5), st.sampled_from(["left", "right"]))
def test_every_token_is_there_once(pairs: list[tuple[list[int], list[int]]], padding: Any):
    """Rows without their padding are what was seen and generated, and the masks part the two."""
    batch = pad_rollouts(
        [result(str(index), turn(seen, done)) for index, (seen, done) in enumerate(pairs)], padding=padding
    )

    for row, (seen, done) in enumerate(pairs):
        kept, acted = batch.padding_mask[row], batch.action_mask[row]
        assert batch.tokens[row][kept].tolist() == seen + done
        assert batch.tokens[row][acted].tolist() == done
        assert batch.logprobs[row][acted].tolist() == [-float(token) for token in done]
        assert not (acted & ~kept).any()
