"""What metrics calls are asked and what they answer: columns of arrays, one array a sequence, and the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.types.data import Datum
from crucible_bridge.types.generated import Usage
from crucible_bridge.types.models import ModelRef
from crucible_bridge.types.results import Metrics
from crucible_bridge.types.trajectories import TrajectoryBatch

__all__ = [
    "ClassificationMetricsRequest",
    "DPOMetricsRequest",
    "KLPenalty",
    "KLPenaltyRequest",
    "KLPostUpdateRequest",
    "KLSampleTrain",
    "KLSampleTrainRequest",
    "LogprobSource",
    "MeanNLLRequest",
    "PassAtKRequest",
    "SamplingClientMetricsRequest",
    "TrajectoryMetricsRequest",
]

Arrays = Sequence[Any]
"""One array a sequence: numpy's, or on the way to the worker a Tensor where it is bf16; the worker widens it."""

LogprobSource = Arrays | ModelRef
"""Log-probabilities of a policy, one array a sequence, or the model to ask for them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLSampleTrainRequest:
    """Asks how far the policy that sampled is from the policy that trains."""

    logprobs: Arrays
    """The sampling policy's, one array of shape (T_i,) a sequence, nats."""
    masks: Arrays
    """Same shapes; a token counts where its mask is above zero."""
    training_logprobs: Arrays
    """The training policy's, same shapes, nats."""
    extended: bool = False
    """Also v3, standard errors, per-sequence values, effective sample size, clip fraction."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPostUpdateRequest:
    """Asks how far an update has moved the policy."""

    logprobs: Arrays
    """Before the update, one array of shape (T_i,) a sequence, nats."""
    masks: Arrays
    """Same shapes; a token counts where its mask is above zero."""
    updated: LogprobSource
    """After the update."""
    data: Sequence[Datum] = ()
    """The sequences, where a model is to be asked: input and "target_tokens"."""
    deadline_ms: int | None = None
    """Milliseconds for asking the model, from receipt."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPenaltyRequest:
    """Asks for advantages with a penalty for leaving the base policy."""

    logprobs: Arrays
    """The policy's, one array of shape (T_i,) a sequence, nats."""
    masks: Arrays
    """Same shapes; they weigh the penalty."""
    advantages: Arrays
    """Same shapes."""
    base: LogprobSource
    """The base policy's."""
    coef: float
    """Scales the penalty."""
    discount: float = 0.0
    """Above 0: discounted sums of future penalties."""
    data: Sequence[Datum] = ()
    """The sequences, where a model is to be asked: input and "target_tokens"."""
    deadline_ms: int | None = None
    """Milliseconds for asking the model, from receipt."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanNLLRequest:
    """Asks for a mean negative log-likelihood."""

    logprobs: Arrays
    """One array of shape (T_i,) a sequence, nats."""
    weights: Arrays
    """Same shapes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectoryMetricsRequest:
    """Asks for a summary of trajectories."""

    batch: TrajectoryBatch
    """The trajectories."""
    good_threshold: float | None = None
    """A group is good when its one reward is at least this; 0.5 if None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPOMetricsRequest:
    """Asks about preference pairs: weighted sums of log-probabilities, shape (pairs,), nats."""

    chosen: np.ndarray
    """The policy's, of the chosen answers."""
    rejected: np.ndarray
    """The policy's, of the rejected answers."""
    chosen_reference: np.ndarray
    """The reference's, of the chosen answers."""
    rejected_reference: np.ndarray
    """The reference's, of the rejected answers."""
    beta: float
    """Above 0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingClientMetricsRequest:
    """Asks which training steps sampled, and how long that took."""

    steps: np.ndarray
    """Training step of each group, shape (groups,)."""
    seconds: np.ndarray
    """Sampling time of each group, shape (groups,)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationMetricsRequest:
    """Asks about predicted and true labels."""

    predictions: Sequence[str]
    """One a sample."""
    targets: Sequence[str]
    """One a sample."""
    positive: str | None = None
    """The positive label, for binary precision, recall and f1; macro averages if None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassAtKRequest:
    """Asks how likely one of k samples is right."""

    samples: np.ndarray
    """Samples of each problem, shape (problems,)."""
    successes: np.ndarray
    """Successes of each problem, shape (problems,)."""
    k: Sequence[int]
    """Values of k."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLSampleTrain:
    """How far the policy that sampled is from the policy that trains."""

    metrics: Metrics
    """`optim/kl_sample_train_v1`, `optim/kl_sample_train_v2`, `optim/entropy`: nats per action token."""
    action_tokens: int
    """Tokens that counted."""
    per_sequence: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Where asked for: an array of shape (sequences,) per key, float64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPenalty:
    """Advantages with a penalty for leaving the base policy."""

    metrics: Metrics
    """`kl_policy_base`: nats per action token."""
    advantages: Arrays
    """The new ones, of the shape and dtype of those given (bf16: a Tensor). Empty where the penalty is undefined."""
    usage: Usage | None = None
    """Of the model, where one was queried."""
