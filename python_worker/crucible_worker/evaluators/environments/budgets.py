"""Limits that an environment brings along in `rollout_limits`, as tinker-cookbook's `RolloutLimits` has them.

Those in time are not kept: a sample has its time-out, and nothing that depends on a clock would come to the same result
twice. Whoever brings one is told so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelInput
from crucible_worker.evaluators.environments.own_loop import ForeignFailure

__all__ = ["MAX_TURNS", "Budget"]

MAX_TURNS = "max_turns"
"""Why an episode was ended that did not end itself, in the words of tinker-cookbook's stop reasons."""

_OF_TOKENS = ("max_turn_tokens", "max_trajectory_tokens", "max_sampled_tokens")
_OF_TIME = ("rollout_timeout_seconds", "sampling_turn_timeout_seconds")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one rollout may take."""

    max_turns: int
    """Turns."""
    max_turn_tokens: int | None = None
    """Tokens that the model says in one turn; those of the request if None, as below."""
    max_trajectory_tokens: int | None = None
    """Tokens of an observation with what is said to it: an observation holds what came before."""
    max_sampled_tokens: int | None = None
    """Tokens that the model says in all turns."""

    @classmethod
    def of(cls, env: Any, max_turns: int) -> Budget:
        """That of an environment, which may have fewer turns than the request allows.

        Raises:
            ForeignFailure: it brings limits that are not kept, or none that are whole numbers from 1.
        """
        limits = getattr(env, "rollout_limits", None)
        for name in _OF_TIME:
            if getattr(limits, name, None) is not None:
                message = f"has rollout_limits.{name}, and is bound by the sample's time-out alone"
                raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
        turns = _whole(limits, "max_turns")
        calls = _whole(limits, "max_tool_calls")
        if calls is not None:
            env.set_max_tool_calls(calls)
        return cls(
            max_turns=max_turns if turns is None else min(turns, max_turns),
            **{name: _whole(limits, name) for name in _OF_TOKENS},
        )

    def spent(self, turns: int, observation: object, sampled: int) -> str | None:
        """Why there is no further turn; None where there may be one.

        Args:
            turns: so far.
            observation: of the next turn.
            sampled: tokens said so far.

        Raises:
            ForeignFailure: observations are counted, and this one is no tokens.
        """
        if turns >= self.max_turns:
            return MAX_TURNS
        # With a single token left there is nothing to say, as the original has it.
        if self.max_trajectory_tokens is not None and self.max_trajectory_tokens - _length(observation) <= 1:
            return "max_tokens"
        if self.max_sampled_tokens is not None and self.max_sampled_tokens - sampled <= 1:
            return "max_sampled_tokens"
        return None

    def turn_tokens(self, max_tokens: int, observation: object, sampled: int) -> int:
        """How many tokens may be said in the next turn, of those that the request allows."""
        allowed = [max_tokens]
        if self.max_turn_tokens is not None:
            allowed.append(self.max_turn_tokens)
        if self.max_trajectory_tokens is not None:
            allowed.append(self.max_trajectory_tokens - _length(observation))
        if self.max_sampled_tokens is not None:
            allowed.append(self.max_sampled_tokens - sampled)
        return min(allowed)


def _whole(limits: Any, name: str) -> int | None:
    value = getattr(limits, name, None)
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, f"has {str(value)[:60]} as rollout_limits.{name}")
    return value


def _length(observation: object) -> int:
    if not isinstance(observation, ModelInput):
        message = "has rollout_limits.max_trajectory_tokens, which is for observations in tokens"
        raise ForeignFailure(Reason.BAD_ENVIRONMENT, message)
    return observation.tokens().size
