"""Rollouts of one sample: observations, actions and rewards; tokens if they are requested."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.data import ModelInput, TokensChunk
from crucible_bridge.types.models import SampledSequence

__all__ = ["MAX_GROUP_BYTES", "Trajectory", "TrajectoryGroup", "Transition"]

MAX_GROUP_BYTES = 8 * 1024 * 1024
"""Size of a group in a sample's result: every page of samples has room for one, as bytes or as numbers in JSON."""

_MAX_COUNT = 2**31 - 1
# A generous bound of what a message takes besides its arrays and texts: heads, counts, the reward.
_TRANSITION_BYTES, _TRAJECTORY_BYTES, _ENTRY_BYTES = 96, 24, 24


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transition:
    """One turn: an observation, and the action that followed it."""

    observation_tokens: int
    """Number of tokens that the model saw."""
    action_tokens: int
    """Number of tokens that it generated."""
    reward: float
    """The reward of the turn; finite."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers of the turn."""
    stop_reason: str = ""
    """Why generation ended: "stop" or "length"; empty if unknown."""
    observation: np.ndarray | None = None
    """The tokens seen, shape (observation_tokens,), int32; None if they were not requested, or contain an image."""
    action: np.ndarray | None = None
    """The tokens generated, shape (action_tokens,), int32; None if they were not requested."""
    action_logprobs: np.ndarray | None = None
    """Log-probability of each token of `action` under the model that generated it, nats, float32; None if there are
    none."""
    cached_observation_tokens: int | None = None
    """Those of `observation_tokens` that the model's backend took from its cache; None if it reports none."""

    @classmethod
    def of(
        cls,
        observation: ModelInput,
        action: SampledSequence,
        *,
        reward: float,
        metrics: Mapping[str, float] | None = None,
        intermediates: bool,
    ) -> Transition:
        """Make one from an observation and the action that followed it.

        Args:
            observation: what the model saw.
            action: what it generated.
            reward: the reward of the turn.
            metrics: further numbers.
            intermediates: whether tokens and log-probabilities are recorded, too.

        Raises:
            InvalidField: an image of the observation does not say how many tokens it takes. Or tokens are to be
                recorded, and the answer has only their number, or not as many log-probabilities.
        """
        seen = sum(map(_length, observation.chunks))
        counts = {"observation_tokens": seen, "action_tokens": action.output_tokens or 0}
        found: dict[str, Any] = {"reward": reward, "metrics": metrics or {}, "stop_reason": action.stop_reason}
        found["cached_observation_tokens"] = action.cached_prompt_tokens
        if not intermediates:
            return cls(**counts, **found)
        if len(action.tokens) != counts["action_tokens"]:
            raise InvalidField("action", "has no tokens: the model's server reports only their number")
        plain = all(isinstance(chunk, TokensChunk) for chunk in observation.chunks)
        return cls(
            **counts,
            **found,
            observation=observation.tokens().astype(np.int32) if plain else None,
            action=np.array(action.tokens, np.int32),
            action_logprobs=None if action.logprobs is None else np.array(action.logprobs, np.float32),
        ).checked("transition")

    def checked(self, field: str) -> Transition:
        """Itself, if its numbers are finite and its arrays are as long as it says.

        Raises:
            InvalidField: names the field that does not fit, below `field`.
        """
        for name in ("observation_tokens", "action_tokens"):
            if not 0 <= (count := getattr(self, name)) <= _MAX_COUNT:
                raise InvalidField(f"{field}.{name}", f"is {count}, must be within 0 and {_MAX_COUNT:,}")
        if (cached := self.cached_observation_tokens) is not None and not 0 <= cached <= _MAX_COUNT:
            path = f"{field}.cached_observation_tokens"
            raise InvalidField(path, f"is {cached}, must be within 0 and {_MAX_COUNT:,}")
        _check_numbers({"reward": self.reward}, field)
        _check_numbers(self.metrics, f"{field}.metrics")
        _check_texts((self.stop_reason, *self.metrics), field)
        _check_array(self.observation, self.observation_tokens, np.int32, f"{field}.observation")
        _check_array(self.action, self.action_tokens, np.int32, f"{field}.action")
        _check_array(self.action_logprobs, self.action_tokens, np.float32, f"{field}.action_logprobs")
        if self.action_logprobs is not None and self.action is None:
            raise InvalidField(f"{field}.action", "is missing, but its log-probabilities are given")
        return self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """One rollout: its turns in order."""

    transitions: tuple[Transition, ...]
    """The turns."""
    final_reward: float = 0.0
    """Added to the rewards of the turns; finite."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Finite numbers of the rollout as a whole."""

    @property
    def total_reward(self) -> float:
        """The sum of its turns' rewards and the final one, rounded once."""
        return math.fsum([*(transition.reward for transition in self.transitions), self.final_reward])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectoryGroup:
    """Rollouts of one problem, to be compared with each other."""

    trajectories: tuple[Trajectory, ...]
    """The rollouts."""
    tags: tuple[str, ...] = ()
    """The kinds of problem it belongs to, each once; "all" applies to every group anyway."""

    @property
    def size(self) -> int:
        """An upper bound of its bytes in a message."""
        total = sum(map(_text_bytes, self.tags))
        for trajectory in self.trajectories:
            total += _TRAJECTORY_BYTES + _metrics_bytes(trajectory.metrics)
            for turn in trajectory.transitions:
                arrays = (turn.observation, turn.action, turn.action_logprobs)
                total += sum(array.nbytes for array in arrays if array is not None)
                total += _TRANSITION_BYTES + _metrics_bytes(turn.metrics) + _text_bytes(turn.stop_reason)
        return total

    def checked(self, field: str) -> TrajectoryGroup:
        """Itself, if every number is finite and every array as long as its transition says.

        Raises:
            InvalidField: names the field that does not fit, below `field`.
        """
        _check_texts(self.tags, field)
        for index, trajectory in enumerate(self.trajectories):
            place = f"{field}.trajectories[{index}]"
            _check_numbers({"final_reward": trajectory.final_reward}, place)
            _check_numbers(trajectory.metrics, f"{place}.metrics")
            _check_texts(trajectory.metrics, place)
            for turn, transition in enumerate(trajectory.transitions):
                transition.checked(f"{place}.transitions[{turn}]")
        return self


def _length(chunk: object) -> int:
    if isinstance(chunk, TokensChunk):
        return len(chunk.tokens)
    tokens = getattr(chunk, "expected_tokens", None)
    if tokens is None:
        raise InvalidField("observation", "has an image that does not say how many tokens it takes")
    return tokens


def _check_numbers(numbers: Mapping[str, float], field: str) -> None:
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise InvalidField(f"{field}.{name}", f"is {value}, must be finite")


def _check_texts(texts: Iterable[str], field: str) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidField(field, f"holds the text {text!r}, which is not Unicode") from error


def _check_array(array: np.ndarray | None, length: int, dtype: type[np.generic], field: str) -> None:
    if array is not None and (array.dtype != dtype or array.shape != (length,)):
        found = f"{array.dtype} of shape {list(array.shape)}"
        raise InvalidField(field, f"has {found}, must have {np.dtype(dtype)} of shape [{length}]")


def _metrics_bytes(metrics: Iterable[str]) -> int:
    return sum(_ENTRY_BYTES + _text_bytes(key) for key in metrics)


def _text_bytes(text: str) -> int:
    # With the head of a field; a surrogate becomes U+FFFD, of as many bytes.
    return 8 + len(text.encode("utf-8", "surrogatepass"))
