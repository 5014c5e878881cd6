"""What a model is asked that its orchestrator holds, and what it answers."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import EvaluateRequest, Problem, SamplingParams
from crucible_bridge.types.models import SampledSequence

__all__ = [
    "Answer",
    "ForwardQuestion",
    "Forwarded",
    "HeldStart",
    "LogprobsQuestion",
    "OrchestratorCall",
    "Question",
    "SampleQuestion",
]


class OrchestratorCall(enum.StrEnum):
    """What a model can be asked for."""

    SAMPLE = "sample"
    """Continuations."""
    LOGPROBS = "logprobs"
    """Log-probabilities of every token of a sequence."""
    FORWARD = "forward"
    """Log-probabilities of given targets: the model's training side."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuestion:
    """Asks for continuations of a prompt."""

    prompt: str | Conversation | ModelInput
    """Text and conversations are rendered by whoever answers."""
    sampling: SamplingParams
    """How to sample; a seed is the sample's own."""
    num_samples: int = 1
    """How many, from 1."""
    plain: bool = False
    """Whether a text is gone on from as it stands; otherwise it is what a user says, where the model has a form."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsQuestion:
    """Asks for log-probabilities of a sequence."""

    sequence: ModelInput
    """Tokens."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForwardQuestion:
    """Asks for a forward pass: no gradients, nothing is changed."""

    data: tuple[Datum, ...]
    """Each with "target_tokens"; nothing else in `loss_fn_inputs` matters."""


Question = SampleQuestion | LogprobsQuestion | ForwardQuestion
"""Something to ask a model."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """The answer to ForwardQuestion."""

    logprobs: tuple[np.ndarray, ...]
    """One per datum, shape of its `target_tokens`, nats."""


Answer = tuple[SampledSequence, ...] | np.ndarray | Forwarded | Problem
"""To SampleQuestion: the continuations. To LogprobsQuestion: shape (tokens - 1,), nats, without the first. To any: why
there is no answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeldStart:
    """Starts an evaluation of a model that the orchestrator holds, or goes on with it."""

    request: EvaluateRequest
    """What to run; its model is an OrchestratorModel."""
    window: int
    """Questions that the orchestrator wants open at once, from 1."""
    calls: frozenset[OrchestratorCall]
    """What the model can be asked for, at least one."""
