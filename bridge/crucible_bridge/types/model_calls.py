"""What a model is asked directly, and what it answers: batches, each item with its result or its own problem."""

from __future__ import annotations

import dataclasses

import numpy as np

from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import BatchLimits, Problem, SamplingParams
from crucible_bridge.types.models import ModelRef, SampledSequence

__all__ = [
    "ForwardAnswer",
    "ForwardOutput",
    "ForwardRequest",
    "LogprobsAnswer",
    "LogprobsRequest",
    "SampleAnswer",
    "SampleItem",
    "SampleRequest",
    "SampledItem",
    "SequenceLogprobs",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleItem:
    """A prompt to go on from."""

    prompt: str | Conversation | ModelInput
    """Plain text (one user message where the model has a chat template), a conversation, or tokens."""
    num_samples: int = 1
    """Continuations, from 1."""
    seed: int | None = None
    """Its own seed; made of `SamplingParams.seed` and its index if None, or drawn where there is none either."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Asks a model to go on."""

    model: ModelRef
    """The model."""
    items: tuple[SampleItem | Problem, ...]
    """The prompts; one that could not be read is its problem."""
    sampling: SamplingParams
    """How to sample, every item alike."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsRequest:
    """Asks a model how likely sequences are."""

    model: ModelRef
    """The model."""
    sequences: tuple[ModelInput | Problem, ...]
    """Tokens, at least one each; one that could not be read is its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """Asks a model for a forward pass: no gradients, nothing is changed."""

    model: ModelRef
    """The model."""
    data: tuple[Datum | Problem, ...]
    """With "target_tokens", and "weights" where a loss is wanted; one that could not be read is its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledItem:
    """What became of a prompt."""

    sequences: tuple[SampledSequence, ...] = ()
    """The continuations, as many as were asked for."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, the chat template's included; None where nobody told, or it holds an image."""
    seed: int | None = None
    """The seed it was sampled by, None where that was greedy: as the item's own, it gives the same samples again."""
    problem: Problem | None = None
    """Why there is no answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleAnswer:
    """The answer to Sample."""

    items: tuple[SampledItem, ...]
    """One per item, in their order."""
    model_fingerprint: str = ""
    """Content of the checkpoint, as its backend tells."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceLogprobs:
    """What became of a sequence."""

    logprobs: np.ndarray | None = None
    """Shape (tokens - 1,), float64, nats: entry i belongs to token i + 1, as no model has a value for the first."""
    problem: Problem | None = None
    """Why there is no answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogprobsAnswer:
    """The answer to ComputeLogprobs."""

    sequences: tuple[SequenceLogprobs, ...]
    """One per sequence, in their order."""
    model_fingerprint: str = ""
    """Content of the checkpoint, as its backend tells."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardOutput:
    """What became of a datum."""

    logprobs: np.ndarray | None = None
    """Shape of `target_tokens`, float64, nats: entry i is log p(target_tokens[i] | model_input[0..i])."""
    loss: float | None = None
    """Minus the sum of log-probabilities times weights, nats; None without weights, or where it is not finite."""
    problem: Problem | None = None
    """Why there is no answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardAnswer:
    """The answer to Forward."""

    outputs: tuple[ForwardOutput, ...]
    """One per datum, in their order."""
    model_fingerprint: str = ""
    """Content of the checkpoint, as its backend tells."""
