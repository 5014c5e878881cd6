"""Limits that an environment defines in `rollout_limits`, like tinker-cookbook's `RolloutLimits`.

Limits of time are refused: a sample has its time-out, and a limit that depends on a clock would not give the same
result twice. The error says so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelInput
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure

__all__ = ["MAX_TURNS", "Budget"]

MAX_TURNS = "max_turns"
"""Why an episode was ended that did not end itself, by tinker-cookbook's stop reasons."""

_OF_TOKENS = ("max_turn_tokens", "max_trajectory_tokens", "max_sampled_tokens")
_OF_TIME = ("rollout_timeout_seconds", "sampling_turn_timeout_seconds")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one rollout."""

    max_turns: int
    """Turns."""
    max_turn_tokens: int | None = None
    """Tokens that the model generates in one turn; if None, here and below, the request's limit."""
    max_trajectory_tokens: int | None = None
    """Tokens of an observation and the answer to it; an observation contains everything before it."""
    max_sampled_tokens: int | None = None
    """Tokens that the model generates in all turns."""

    @classmethod
    def of(cls, env: Any, max_turns: int) -> Budget:
        """The limits of an environment; it may have fewer turns than the request allows.

        Raises:
            ForeignFailure: it defines limits of time, or limits that are not whole numbers from 1.
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

    def spent(self, turns: int, observation: object, sampled: int | None) -> str | None:
        """Why there is no further turn; None if there may be one.

        Args:
            turns: so far.
            observation: of the next turn.
            sampled: tokens generated so far; None if the model's server does not report them.

        Raises:
            ForeignFailure: observations are counted, and this one is not in tokens.
            FailedPrecondition: generated tokens are limited, and not reported.
        """
        if turns >= self.max_turns:
            return MAX_TURNS
        # A single remaining token is not used, as in the original.
        if self.max_trajectory_tokens is not None and self.max_trajectory_tokens - _length(observation) <= 1:
            return "max_tokens"
        if self.max_sampled_tokens is None:
            return None
        if sampled is None:
            message = "the environment has rollout_limits.max_sampled_tokens, and the model's server reports no tokens"
            raise FailedPrecondition(message, reason=Reason.NO_TOKENS)
        return "max_sampled_tokens" if self.max_sampled_tokens - sampled <= 1 else None

    def turn_tokens(self, max_tokens: int, observation: object, sampled: int | None) -> int:
        """How many tokens may be generated in the next turn, of those that the request allows."""
        allowed = [max_tokens]
        if self.max_turn_tokens is not None:
            allowed.append(self.max_turn_tokens)
        if self.max_trajectory_tokens is not None:
            allowed.append(self.max_trajectory_tokens - _length(observation))
        if self.max_sampled_tokens is not None and sampled is not None:
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
