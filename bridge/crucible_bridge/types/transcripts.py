"""What went between a sample and its models: the prompt, and the turns of longer exchanges."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np

from crucible_bridge.types.data import Conversation

__all__ = ["SamplePrompt", "TokenPrompt", "Turn"]


@dataclasses.dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that came as tokens, whose text is not known."""

    token_count: int
    """How many tokens."""


SamplePrompt: TypeAlias = str | Conversation | TokenPrompt
"""What a model got: text, messages that its server puts into a template, or a note that it was tokens."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """A turn of a sample's transcript: what a model got, or what it said."""

    role: str
    """"assistant" for what a model said; for what it got, the role of the message, and "user" for plain text."""
    text: str
    """What was said; empty where it came as tokens whose text is not known."""
    reward: float | None = None
    """What it was worth, where it is rewarded; finite."""
    tokens: int | None = None
    """Tokens of it, where they are known: of an observation, all that the model saw."""
    rollout: int = 0
    """Which rollout of the sample it belongs to, from 0."""
    model: str = ""
    """The further model it belongs to, by the option that names it: "judge". Empty for the model that is evaluated."""
    token_ids: np.ndarray | None = None
    """The tokens generated, int32; None unless the evaluator was asked for its intermediates."""
    logprobs: np.ndarray | None = None
    """Log-probability of each of them, nats, float32; likewise."""
