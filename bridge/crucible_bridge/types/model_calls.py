"""Direct calls of a model: batches of items in, and for each item its result or its problem."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import BatchLimits, Problem, SamplingParams
from crucible_bridge.types.models import ModelRef

__all__ = ["ForwardRequest", "LogprobsRequest", "SampleItem", "SampleRequest"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleItem:
    """A prompt to continue."""

    prompt: str | Conversation | ModelInput
    """Plain text (one user message if the model has a chat template), a conversation, or tokens."""
    num_samples: int = 1
    """How many continuations, at least 1."""
    seed: int | None = None
    """Its own seed; if None, made from `SamplingParams.seed` and its index, or random without that seed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Request for continuations."""

    model: ModelRef
    """The model."""
    items: tuple[SampleItem | Problem, ...]
    """The prompts; one that could not be read is replaced by its problem."""
    sampling: SamplingParams
    """How to sample; the same for every item."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsRequest:
    """Request for log-probabilities of sequences."""

    model: ModelRef
    """The model."""
    sequences: tuple[ModelInput | Problem, ...]
    """Tokens, at least one each; one that could not be read is replaced by its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """Request for a forward pass: no gradients, nothing is changed."""

    model: ModelRef
    """The model."""
    data: tuple[Datum | Problem, ...]
    """With "target_tokens", and "weights" for a loss; one that could not be read is replaced by its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""
