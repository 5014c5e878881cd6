"""The option `intermediates` of evaluators that measure given tokens: the measured tokens, in the form for training.

A sample becomes a group as of `rollout`: the measured tokens are the action after all tokens before them, though
nothing was generated. If they have gaps, as with several answers of a conversation, each stretch is a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.types import Datum, Trajectory, TrajectoryGroup, Transition
from crucible_worker.evaluators.targets import checked_targets, sequence_of

__all__ = ["Intermediates", "choice_group", "measured_group"]

Intermediates: TypeAlias = Annotated[
    bool,
    Meta(
        description=(
            "Keep the tokens of each scored sample, which of them were measured, and their log-probabilities where "
            "the model gives some."
        )
    ),
]
"""The type of the option."""


def measured_group(datum: Datum, logprobs: np.ndarray | None, score: float) -> TrajectoryGroup:
    """The tokens of one sample, as one rollout whose reward is its score.

    Args:
        datum: the sample in tokens; tokens with weight were measured.
        logprobs: log-probability of each target, shape (T,), nats; None if there are none.
        score: the score of the sample.

    Raises:
        InvalidField: a target with weight is not the token that follows in the input, or that one is no text: then
            input and targets are not one sequence of tokens.
    """
    sequence = sequence_of(datum, "intermediates are one sequence of tokens").astype(np.int32)
    _, weights = checked_targets(datum)
    stretches = list(_stretches(weights))
    turns = tuple(
        _turn(
            sequence[: first + 1],
            sequence[first + 1 : end + 1],
            None if logprobs is None else logprobs[first:end],
            # The last turn has the reward: the sum over the turns is then the score.
            score if end == stretches[-1][1] else 0.0,
        )
        for first, end in stretches
    )
    return TrajectoryGroup(trajectories=(Trajectory(transitions=turns),))


def choice_group(
    prompt: Sequence[int],
    continuations: Sequence[Sequence[int]],
    logprobs: Sequence[np.ndarray],
    right: frozenset[int],
) -> TrajectoryGroup:
    """A question with each of its choices, as one rollout each: its reward is 1 if the choice is right, else 0.

    Args:
        prompt: token ids of the question.
        continuations: token ids of each choice.
        logprobs: log-probabilities of the tokens of each, nats.
        right: indices of the choices that a target names.
    """
    asked = np.array(prompt, np.int32)
    return TrajectoryGroup(
        trajectories=tuple(
            Trajectory(transitions=(_turn(asked, np.array(tokens, np.int32), each, 1.0 if index in right else 0.0),))
            for index, (tokens, each) in enumerate(zip(continuations, logprobs, strict=True))
        )
    )


def _turn(observation: np.ndarray, action: np.ndarray, logprobs: np.ndarray | None, reward: float) -> Transition:
    return Transition(
        observation_tokens=observation.size,
        action_tokens=action.size,
        reward=reward,
        observation=observation,
        action=action,
        action_logprobs=None if logprobs is None else logprobs.astype(np.float32),
    )


def _stretches(weights: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of weights other than 0: the first index of each run, and the index after its last."""
    marked = np.concatenate(([False], weights != 0, [False]))
    edges = np.flatnonzero(marked[1:] != marked[:-1])
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
