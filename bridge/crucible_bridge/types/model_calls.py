"""Direct calls of a model: batches of items in, and for each item its result or its problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import BatchLimits, Problem, SamplingParams
from crucible_bridge.types.models import ModelRef, parse_model

__all__ = ["ForwardRequest", "LogprobsItem", "LogprobsRequest", "SampleItem", "SampleRequest", "Teacher"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleItem:
    """A prompt to continue."""

    prompt: str | Conversation | ModelInput
    """Plain text (one user message if the model has a chat template), a conversation, or tokens."""
    num_samples: int = 1
    """How many continuations, at least 1."""
    seed: int | None = None
    """Its own seed; if None, made from `SamplingParams.seed` and its index, or random without that seed."""
    tool_choice: str = ""
    """How a model is to use the tools of the conversation: "auto", also if empty, "none", "required", or the name of
    one that it must call. Anything but "auto" is for models of OpenAI-compatible servers."""


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
    top_logprobs: int | None = None
    """How many of the likeliest tokens come with each generated one, at most the worker's max_top_k; None is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogprobsItem:
    """A sequence to measure."""

    prompt: str | Conversation | ModelInput
    """Plain text, without special tokens unless the request asks for them; a conversation, by the model's chat
    template; or tokens."""
    continuation: tuple[int, ...] = ()
    """Token ids after the prompt. If there are any, only they are measured, and a conversation ends with the beginning
    of an answer."""
    targets: np.ndarray | None = None
    """Further tokens to measure: int32 or int64 of shape (rows, m), one row for each measured token, or (m,) for the
    same ones in every row. A token of -1 is none: its value is NaN."""
    last_n: int | None = None
    """Only the last of the tokens that would be measured are, so many, at least 1; as many as the request says if
    None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """One of the models that sequences are measured by together."""

    model: ModelRef
    """The model."""
    weight: float = 1.0
    """Its share, above 0; the shares of the teachers of a sequence are divided by their sum."""
    items: tuple[int, ...] = ()
    """Indices of the sequences that it measures, each once; all if empty."""

    @classmethod
    def of(cls, model: ModelRef | str, weight: float = 1.0, items: Iterable[int] = ()) -> Teacher:
        """A teacher, whose model may be text: "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".

        Raises:
            InvalidField: the text names no model.
        """
        reference = parse_model(model) if isinstance(model, str) else model
        return cls(model=reference, weight=weight, items=tuple(int(index) for index in items))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsRequest:
    """Request for log-probabilities of `sequences` or of `items`, by `model` or by `teachers`."""

    model: ModelRef | None = None
    """The model; None if there are teachers."""
    sequences: tuple[ModelInput | Problem, ...] = ()
    """Tokens, at least one each; one that could not be read is replaced by its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""
    items: tuple[LogprobsItem | Problem, ...] = ()
    """Tokens, text or conversations; likewise."""
    top_k: int | None = None
    """How many of the likeliest tokens come with each measured one, at most the worker's max_top_k; None is none."""
    last_n: int | None = None
    """Only the last tokens of each sequence are measured, so many; None is all but the first."""
    add_special_tokens: bool = False
    """Whether the special tokens that the tokenizer puts around a text are added to texts."""
    teachers: tuple[Teacher, ...] = ()
    """In place of `model`: the weighted mean of their probabilities."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """Request for a forward pass: no gradients, nothing is changed."""

    model: ModelRef
    """The model."""
    data: tuple[Datum | Problem, ...] = ()
    """With "target_tokens", and "weights" for a loss; one that could not be read is replaced by its problem."""
    limits: BatchLimits = BatchLimits()
    """Bounds."""
    items: tuple[Datum | str | Conversation | Problem, ...] = ()
    """In place of `data`: Datums, text or conversations; likewise."""
    train_on: str = ""
    """Which tokens of conversations have weight, as of `BuildSupervisedExample`; "last_assistant" if empty."""
    add_special_tokens: bool = False
    """Whether the special tokens that the tokenizer puts around a text are added to texts."""
