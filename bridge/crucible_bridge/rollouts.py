"""From the rollouts of samples to arrays for a reinforcement learner: one row each, padded to one length.

results = [result async for result in bridge.evaluation.all_samples(evaluation_id)]
batch = pad_rollouts(results, padding="left")
rewards = batch.rewards.reshape(-1, samples_per_prompt)     # rows of one prompt are adjacent
advantages = rewards - np.nanmean(rewards, axis=1, keepdims=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import SampleResult, Trajectory

__all__ = ["PaddedRollouts", "pad_rollouts"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddedRollouts:
    """Rollouts in rows, in the order of the results; those of one sample are adjacent.

    A result without a score has one row with the reward NaN and without tokens. So it is neither a reward of 0 nor
    missing. With the evaluator `rollout`, each result is one rollout, so every sample has the same number of rows.
    """

    tokens: np.ndarray
    """What the model saw and generated, shape (n, L), int32; the padding token elsewhere."""
    action_mask: np.ndarray
    """True if the model generated the token, shape (n, L), bool."""
    padding_mask: np.ndarray
    """True if there is a token, seen or generated, shape (n, L), bool; false on padding."""
    logprobs: np.ndarray
    """Log-probability of each generated token under the model that generated it, nats, shape (n, L), float32; NaN if
    its backend reported none, 0 for tokens that were not generated."""
    rewards: np.ndarray
    """Reward of each rollout, shape (n,), float64; NaN if there is no score."""
    scored: np.ndarray
    """Which rollouts have a reward, shape (n,), bool."""
    groups: np.ndarray
    """Which sample each row belongs to, from 0 in the order of the results, shape (n,), int32."""
    sample_ids: tuple[str, ...]
    """The id of each row's sample."""


def pad_rollouts(
    results: Iterable[SampleResult], *, padding: Literal["left", "right"] = "left", pad_token: int = 0
) -> PaddedRollouts:
    """Put the rollouts of samples into arrays.

    Args:
        results: of one evaluator that records rollouts with their tokens (`intermediates`), in the order of GetSamples:
            sample by sample, and its repeats.
        padding: the end at which rows are padded.
        pad_token: the token to pad with.

    Raises:
        InvalidField: a result occurs twice, as results of several evaluators do; a scored one has no rollouts, or
            none with tokens; or a turn does not begin with all of the turn before it, so a rollout is not one sequence.
    """
    if padding not in ("left", "right"):
        raise InvalidField("padding", f"is {padding!r}, not left or right")
    rows = list(_rows(results))
    width = max((row.tokens.size for row in rows), default=0)
    shape = (len(rows), width)
    tokens, logprobs = np.full(shape, pad_token, np.int32), np.zeros(shape, np.float32)
    action_mask, padding_mask = np.zeros(shape, bool), np.zeros(shape, bool)
    for at, row in enumerate(rows):
        size = row.tokens.size
        where = slice(width - size, width) if padding == "left" else slice(0, size)
        tokens[at, where], logprobs[at, where] = row.tokens, row.logprobs
        action_mask[at, where], padding_mask[at, where] = row.generated, True
    rewards = np.array([row.reward for row in rows], np.float64)
    return PaddedRollouts(
        tokens=tokens,
        action_mask=action_mask,
        padding_mask=padding_mask,
        logprobs=logprobs,
        rewards=rewards,
        scored=~np.isnan(rewards),
        groups=np.array([row.group for row in rows], np.int32),
        sample_ids=tuple(row.sample_id for row in rows),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    sample_id: str
    group: int
    reward: float
    tokens: np.ndarray
    generated: np.ndarray
    logprobs: np.ndarray


def _rows(results: Iterable[SampleResult]) -> Iterator[_Row]:
    seen: set[tuple[str, int]] = set()
    groups: dict[str, int] = {}
    for index, result in enumerate(results):
        field, place = f"results[{index}]", (result.sample_id, result.repeat)
        if place in seen:
            raise InvalidField(field, f"is a second result of sample {place[0]!r}: pass results of one evaluator only")
        seen.add(place)
        yield from _rows_of(result, groups.setdefault(result.sample_id, len(groups)), field)


def _rows_of(result: SampleResult, group: int, field: str) -> Iterator[_Row]:
    if not result.verdict.scored or (result.score is None and result.group is None):
        nothing = np.empty(0, np.int32)
        yield _Row(
            sample_id=result.sample_id,
            group=group,
            reward=float("nan"),
            tokens=nothing,
            generated=nothing.astype(bool),
            logprobs=nothing.astype(np.float32),
        )
        return
    if result.group is None:
        raise InvalidField(
            field, f"has no rollouts: set the option intermediates of the evaluator {result.evaluator!r}"
        )
    for index, trajectory in enumerate(result.group.trajectories):
        tokens, generated, logprobs = _sequence(trajectory, f"{field}.group.trajectories[{index}]")
        yield _Row(
            sample_id=result.sample_id,
            group=group,
            reward=trajectory.total_reward,
            tokens=tokens,
            generated=generated,
            logprobs=logprobs,
        )


def _sequence(trajectory: Trajectory, field: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of a rollout, which of them were generated, and their log-probabilities."""
    tokens, generated, logprobs = np.empty(0, np.int32), np.empty(0, bool), np.empty(0, np.float32)
    for index, turn in enumerate(trajectory.transitions):
        observed, action = turn.observation, turn.action
        if observed is None or action is None:
            raise InvalidField(
                f"{field}.transitions[{index}]", "has no tokens: set the evaluator's option intermediates"
            )
        if not np.array_equal(observed[: tokens.size], tokens):
            message = "does not begin with all that came before it: its rollout is not one sequence"
            raise InvalidField(f"{field}.transitions[{index}].observation", message)
        new = observed[tokens.size :]
        told = np.full(action.size, np.nan, np.float32) if turn.action_logprobs is None else turn.action_logprobs
        tokens = np.concatenate((tokens, new, action))
        generated = np.concatenate((generated, np.zeros(new.size, bool), np.ones(action.size, bool)))
        logprobs = np.concatenate((logprobs, np.zeros(new.size, np.float32), told))
    return tokens, generated, logprobs
