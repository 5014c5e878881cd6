"""Messages between a sample and its models: the prompt, and the turns of longer exchanges."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np

from crucible_bridge.types.data import Conversation, ToolCall, UnparsedToolCall

__all__ = ["SamplePrompt", "TokenPrompt", "Turn"]


@dataclasses.dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that was given as tokens; its text is not known."""

    token_count: int
    """How many tokens."""


SamplePrompt: TypeAlias = str | Conversation | TokenPrompt
"""The prompt of a model: text, messages that its server puts into a template, or a note that it was tokens."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """A turn of a sample's transcript: a message to a model, or its reply."""

    role: str
    """"assistant" for a model's reply; for a message to it the message's role, and "user" for plain text."""
    text: str
    """The text; empty if it was given as tokens and its text is not known."""
    reward: float | None = None
    """Its reward, if it has one; finite."""
    tokens: int | None = None
    """The number of its tokens, if known: for an observation, all that the model saw."""
    rollout: int = 0
    """Which rollout of the sample it belongs to, from 0."""
    model: str = ""
    """The auxiliary model it belongs to, by the option that names it: "judge". Empty for the evaluated model."""
    token_ids: np.ndarray | None = None
    """The tokens generated, int32; None unless `intermediates` of the evaluator is set."""
    logprobs: np.ndarray | None = None
    """Log-probability of each of them, nats, float32; None likewise."""
    reasoning: str = ""
    """Its reasoning, without tags: of its text, and what the model's server returned apart from the text."""
    refusal: str = ""
    """The refusal that the server returned in place of an answer; empty if there is none."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools: those that the server returned; of a model whose prompt the worker makes, those in the text of an
    answer to a conversation with tools."""
    unparsed_tool_calls: tuple[UnparsedToolCall, ...] = ()
    """Those that cannot be parsed."""
