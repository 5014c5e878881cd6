"""What a model is asked directly, and what it answers: batches, each item with its result or its own problem."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import BatchLimits, Problem, SamplingParams
from crucible_bridge.types.models import ModelRef

__all__ = ["ForwardRequest", "LogprobsRequest", "SampleItem", "SampleRequest"]


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
