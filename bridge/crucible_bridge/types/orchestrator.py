"""Questions to what a caller holds, and the answers."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from crucible_bridge.types.callers import AnsweredEnvironment, AnsweredGrade, EnvironmentQuestion, GradeQuestion
from crucible_bridge.types.data import Conversation, Datum, ModelInput
from crucible_bridge.types.generated import EvaluateRequest, Problem, SamplingParams
from crucible_bridge.types.models import SampledSequence

__all__ = [
    "Answer",
    "ArgmaxQuestion",
    "ForwardQuestion",
    "Forwarded",
    "HeldStart",
    "LikeliestTokens",
    "LogprobsQuestion",
    "ModelQuestion",
    "OrchestratorCall",
    "Question",
    "SampleQuestion",
]


class OrchestratorCall(enum.StrEnum):
    """The calls that a client-held model may support."""

    SAMPLE = "sample"
    """Continuations."""
    LOGPROBS = "logprobs"
    """Log-probabilities of every token of a sequence."""
    FORWARD = "forward"
    """Log-probabilities of given targets: the model's training side."""
    ARGMAX = "argmax"
    """The likeliest token at every position of a sequence."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuestion:
    """A question for continuations of a prompt."""

    prompt: str | Conversation | ModelInput
    """Text and conversations are rendered by the orchestrator."""
    sampling: SamplingParams
    """How to sample; a seed is the sample's own."""
    num_samples: int = 1
    """How many, at least 1."""
    plain: bool = False
    """Whether to continue a text unchanged; otherwise it is a user message, if the model has a chat template."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsQuestion:
    """A question for log-probabilities of a sequence."""

    sequence: ModelInput
    """Tokens."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForwardQuestion:
    """A question for a forward pass: no gradients, nothing is changed."""

    data: tuple[Datum, ...]
    """Each with "target_tokens"; other entries of `loss_fn_inputs` are ignored."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArgmaxQuestion:
    """A question for the likeliest token at every position of a sequence, given its own tokens before."""

    sequence: ModelInput
    """Tokens."""


ModelQuestion = SampleQuestion | LogprobsQuestion | ForwardQuestion | ArgmaxQuestion
"""A question to a model."""

Question = ModelQuestion | GradeQuestion | EnvironmentQuestion
"""A question to a model, a grader or an environment."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """The answer to ForwardQuestion."""

    logprobs: tuple[np.ndarray, ...]
    """One per datum, shape of its `target_tokens`, nats."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LikeliestTokens:
    """The answer to ArgmaxQuestion."""

    tokens: np.ndarray
    """Shape (tokens - 1,), int32 or int64: entry i follows the tokens 0 to i. -1 if it is not the sequence's own next
    token, and its id is not known."""


Answer = (
    tuple[SampledSequence, ...]
    | np.ndarray
    | Forwarded
    | LikeliestTokens
    | AnsweredGrade
    | AnsweredEnvironment
    | Problem
)
"""To SampleQuestion: the continuations. To LogprobsQuestion: shape (tokens - 1,), nats, without the first. To any: the
problem, if there is no answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeldStart:
    """Starts an evaluation of which the client holds a part, or resumes it."""

    request: EvaluateRequest
    """What to run; its model is an OrchestratorModel, unless there are graders or environments."""
    window: int
    """Questions that may be open at once, at least 1."""
    calls: frozenset[OrchestratorCall]
    """The calls that an OrchestratorModel supports, at least one; none for any other model."""
    graders: tuple[str, ...] = ()
    """Names of the client's graders."""
    environments: tuple[str, ...] = ()
    """Names of the client's environments."""
