"""Requests and replies of metrics calls: columns of arrays, one array per sequence, and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.types.data import Datum
from crucible_bridge.types.generated import PreferencePair, Usage
from crucible_bridge.types.models import ModelRef
from crucible_bridge.types.results import Metrics
from crucible_bridge.types.trajectories import TrajectoryBatch

__all__ = [
    "ClassificationMetricsRequest",
    "DPOMetrics",
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
"""One array per sequence: numpy's, or, on the way to the worker, a Tensor if it is bf16; the worker widens it."""

LogprobSource = Arrays | ModelRef
"""Log-probabilities of a policy, one array per sequence, or the model to query for them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLSampleTrainRequest:
    """Request for the KL of the policy that sampled and the policy that trains."""

    logprobs: Arrays
    """The sampling policy's, one array of shape (T_i,) per sequence, nats."""
    masks: Arrays
    """Same shapes; a token counts where its mask is above zero."""
    training_logprobs: Arrays
    """The training policy's, same shapes, nats."""
    extended: bool = False
    """Also v3, standard errors, per-sequence values, effective sample size, clip fraction."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPostUpdateRequest:
    """Request for the KL of a policy before and after an update."""

    logprobs: Arrays
    """Before the update, one array of shape (T_i,) per sequence, nats."""
    masks: Arrays
    """Same shapes; a token counts where its mask is above zero."""
    updated: LogprobSource
    """After the update."""
    data: Sequence[Datum] = ()
    """The sequences, if a model is to be queried: input and "target_tokens"."""
    deadline_ms: int | None = None
    """Milliseconds for querying the model, from receipt."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPenaltyRequest:
    """Request for advantages with a penalty for leaving the base policy."""

    logprobs: Arrays
    """The policy's, one array of shape (T_i,) per sequence, nats."""
    masks: Arrays
    """Same shapes; they weight the penalty."""
    advantages: Arrays
    """Same shapes."""
    base: LogprobSource
    """The base policy's."""
    coef: float
    """Scales the penalty."""
    discount: float = 0.0
    """Above 0: discounted sums of future penalties."""
    data: Sequence[Datum] = ()
    """The sequences, if a model is to be queried: input and "target_tokens"."""
    deadline_ms: int | None = None
    """Milliseconds for querying the model, from receipt."""
    reverse_kl: bool = False
    """Whether the penalty is that of on-policy distillation: the reverse KL to a teacher, without the mean."""
    datasets: Sequence[str] = ()
    """With `reverse_kl`, the data set of each sequence; none if empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanNLLRequest:
    """Request for a mean negative log-likelihood."""

    logprobs: Arrays
    """One array of shape (T_i,) per sequence, nats."""
    weights: Arrays
    """Same shapes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectoryMetricsRequest:
    """Request for a summary of trajectories."""

    batch: TrajectoryBatch
    """The trajectories."""
    good_threshold: float | None = None
    """A group with one common reward is good if that is at least this; 0.5 if None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPOMetricsRequest:
    """Request for metrics of preference pairs: weighted sums of log-probabilities, shape (pairs,), nats, or models."""

    chosen: np.ndarray | None = None
    """The policy's, of the chosen answers; None if the policy is queried."""
    rejected: np.ndarray | None = None
    """The policy's, of the rejected answers; likewise."""
    chosen_reference: np.ndarray | None = None
    """The reference's, of the chosen answers; None if the reference is queried."""
    rejected_reference: np.ndarray | None = None
    """The reference's, of the rejected answers; likewise."""
    beta: float
    """Above 0."""
    policy: ModelRef | None = None
    """The policy to query, instead of its log-probabilities."""
    reference: ModelRef | None = None
    """The reference to query, instead of its log-probabilities."""
    pairs: Sequence[PreferencePair] = ()
    """The answers to measure, if a model is queried."""
    deadline_ms: int | None = None
    """Milliseconds for the models, from receipt."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPOMetrics:
    """Metrics of preference pairs, and what the queried models gave; None for a model that was not queried."""

    metrics: Metrics
    """`dpo_loss`, `accuracy`, `margin`, `chosen_reward`, `rejected_reward`."""
    policy_usage: Usage | None = None
    """Usage of the policy."""
    reference_usage: Usage | None = None
    """Usage of the reference."""
    chosen: np.ndarray | None = None
    """The policy's sums of log-probabilities of the chosen answers, shape (pairs,), nats."""
    rejected: np.ndarray | None = None
    """Likewise, of the rejected answers."""
    chosen_reference: np.ndarray | None = None
    """The reference's, of the chosen answers."""
    rejected_reference: np.ndarray | None = None
    """The reference's, of the rejected answers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingClientMetricsRequest:
    """Request for metrics of sampling: from which training steps, and how long it took."""

    steps: np.ndarray
    """Training step of each group, shape (groups,)."""
    seconds: np.ndarray
    """Sampling time of each group, shape (groups,)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationMetricsRequest:
    """Request for metrics of predicted and true labels."""

    predictions: Sequence[str]
    """One per sample."""
    targets: Sequence[str]
    """One per sample."""
    positive: str | None = None
    """The positive label, for binary precision, recall and f1; macro averages if None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassAtKRequest:
    """Request for pass@k: how likely one of k samples is right."""

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
    """If requested: an array of shape (sequences,) per key, float64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KLPenalty:
    """Advantages with a penalty for leaving the base policy."""

    metrics: Metrics
    """`kl_policy_base`, or `teacher_kl` and `teacher_kl/dataset_<name>`: nats per action token."""
    advantages: Arrays
    """The new ones, of the shape and dtype of those given (bf16: a Tensor). Empty if the penalty is undefined; without
    values for a sequence whose penalty is."""
    usage: Usage | None = None
    """Usage of the model, if one was queried."""
    without_penalty: tuple[str, ...] = ()
    """Per sequence, why it has no penalty, and no part in the metrics; empty for one that has. None if all have one."""
