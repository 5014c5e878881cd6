"""The metrics calls that need no model: from the bytes of a request to those of its response."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import floats, stored_like
from crucible_bridge.codec import metric_results as results
from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Array,
    DPOMetrics,
    DPOMetricsRequest,
    KLPenaltyRequest,
    KLPostUpdateRequest,
    PassAtKRequest,
    Ragged,
    Usage,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_worker.metrics.classification import classification_metrics
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from crucible_worker.metrics.pass_at_k import pass_at_k
from crucible_worker.metrics.preference import dpo_metrics
from crucible_worker.metrics.sampling_client import sampling_client_metrics
from crucible_worker.metrics.sums import count_values
from crucible_worker.metrics.trajectory import trajectory_metrics

__all__ = [
    "Answer",
    "check_number",
    "classification_answer",
    "dpo_answer",
    "kl_penalty_answer",
    "kl_post_update_answer",
    "kl_sample_train_answer",
    "mean_nll_answer",
    "pass_at_k_answer",
    "sampling_client_answer",
    "trajectory_answer",
]

Answer = tuple[bytes, int]
"""A response, and the number of tokens that it was computed from."""


def check_number(sequences: Sequence[Any], limit: int, field: str = "data") -> None:
    """Refuse more sequences than the limit; if they are no columns, errors name them `field`.

    Raises:
        InvalidField: there are more.
    """
    if len(sequences) > limit:
        path = "columns.lengths" if isinstance(sequences, Ragged) else field
        raise InvalidField(path, f"has {len(sequences):,} sequences, at most {limit:,} are accepted")


def kl_post_update_answer(
    request: KLPostUpdateRequest, updated: Sequence[np.ndarray], field: str, usage: Usage | None
) -> Answer:
    """Answer ComputeKLPostUpdate, given the log-probabilities after the update; errors name them `field`."""
    result = kl_post_update(request.logprobs, updated, request.masks, updated_field=field)
    result = dataclasses.replace(result, usage=usage)
    return results.kl_post_update_to_bytes(result), count_values(request.logprobs)


def kl_penalty_answer(request: KLPenaltyRequest, base: Sequence[np.ndarray], field: str, usage: Usage | None) -> Answer:
    """Answer IncorporateKLPenalty, given the log-probabilities of the base policy; errors name them `field`."""
    given = request.advantages
    result = incorporate_kl_penalty(
        request.logprobs,
        base,
        request.masks,
        _widened(given) if isinstance(given, Ragged) else [_numbers(array) for array in given],
        coef=request.coef,
        discount=request.discount,
        reverse_kl=request.reverse_kl,
        datasets=request.datasets,
        base_field=field,
    )
    if not isinstance(given, Ragged):
        advantages = tuple(map(stored_like, result.advantages, given))
        result = dataclasses.replace(result, advantages=advantages)
    elif given.stored is not None and isinstance(result.advantages, Ragged):
        rounded = stored_like(result.advantages.values, given.stored)
        result = dataclasses.replace(result, advantages=(rounded,))
    return results.kl_penalty_to_bytes(dataclasses.replace(result, usage=usage)), count_values(request.logprobs)


def _numbers(array: Array) -> np.ndarray:
    # bf16 as float64, so that it is rounded only once.
    return array if isinstance(array, np.ndarray) else floats(array, "advantages").astype(np.float64)


def _widened(column: Ragged) -> Ragged:
    return column if column.stored is None else column.like(column.values.astype(np.float64))


def kl_sample_train_answer(max_sequences: int, data: bytes) -> Answer:
    """Answer ComputeKLSampleTrain, for at most so many sequences."""
    request = token_codec.kl_sample_train_request_from_bytes(data)
    check_number(request.logprobs, max_sequences)
    result = kl_sample_train(request.logprobs, request.training_logprobs, request.masks, extended=request.extended)
    return results.kl_sample_train_to_bytes(result), count_values(request.logprobs)


def mean_nll_answer(max_sequences: int, data: bytes) -> Answer:
    """Answer ComputeMeanNLL, for at most so many sequences."""
    request = token_codec.mean_nll_request_from_bytes(data)
    check_number(request.logprobs, max_sequences, "logprobs")
    return results.mean_nll_to_bytes(mean_nll(request.logprobs, request.weights)), count_values(request.logprobs)


def trajectory_answer(data: bytes) -> Answer:
    """Answer ComputeTrajectoryMetrics."""
    request = codec.trajectory_metrics_request_from_bytes(data)
    batch, threshold = request.batch, request.good_threshold
    metrics = trajectory_metrics(batch) if threshold is None else trajectory_metrics(batch, good_threshold=threshold)
    tokens = batch.action_tokens.sum(dtype=np.int64) + batch.observation_tokens.sum(dtype=np.int64)
    return results.metrics_to_bytes(pb.ComputeTrajectoryMetricsResponse, metrics), int(tokens)


def dpo_answer(request: DPOMetricsRequest, measured: DPOMetrics) -> Answer:
    """Answer ComputeDPOMetrics, given what queried models measured; the metrics there are ignored."""
    columns: dict[str, np.ndarray] = {}
    for name in codec.DPO_COLUMNS.values():
        column = getattr(measured, name)
        columns[name] = getattr(request, name) if column is None else column
    metrics = dpo_metrics(**columns, beta=request.beta)
    return results.dpo_metrics_to_bytes(dataclasses.replace(measured, metrics=metrics)), 0


def sampling_client_answer(data: bytes) -> Answer:
    """Answer ComputeSamplingClientMetrics."""
    request = codec.sampling_client_metrics_request_from_bytes(data)
    metrics = sampling_client_metrics(request.steps, request.seconds)
    return results.metrics_to_bytes(pb.ComputeSamplingClientMetricsResponse, metrics), 0


def classification_answer(data: bytes) -> Answer:
    """Answer ComputeClassificationMetrics."""
    request = codec.classification_metrics_request_from_bytes(data)
    metrics = classification_metrics(request.predictions, request.targets, positive=request.positive)
    return results.metrics_to_bytes(pb.ComputeClassificationMetricsResponse, metrics), 0


def pass_at_k_answer(request: PassAtKRequest) -> Answer:
    """Answer ComputePassAtK."""
    metrics = pass_at_k(request.samples, request.successes, request.k)
    return results.metrics_to_bytes(pb.ComputePassAtKResponse, metrics), 0
