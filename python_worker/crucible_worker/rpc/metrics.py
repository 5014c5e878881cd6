"""MetricsService: decode, call, encode.

Requests and responses are bytes here: threads parse 64 MiB, and compute with it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.descriptor import MethodDescriptor

from crucible_bridge.arrays import floats, stored_like
from crucible_bridge.codec import metric_results as results
from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.errors import InvalidField, ResourceExhausted
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Array,
    DPOMetrics,
    DPOMetricsRequest,
    KLPenaltyRequest,
    KLPostUpdateRequest,
    Metrics,
    ModelRef,
    PassAtKRequest,
    Ragged,
    Usage,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_worker.backends.base import Backend
from crucible_worker.backends.continuations import concurrently
from crucible_worker.engine.usage import Charge
from crucible_worker.events.run_events import metrics_computed
from crucible_worker.inference.logprobs import PairLogprobs, model_logprobs, pair_logprobs
from crucible_worker.metrics.classification import classification_metrics
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from crucible_worker.metrics.pass_at_k import most_draws, pass_at_k
from crucible_worker.metrics.preference import dpo_metrics
from crucible_worker.metrics.sampling_client import sampling_client_metrics
from crucible_worker.metrics.sequences import count_values
from crucible_worker.metrics.trajectory import trajectory_metrics
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context
from crucible_worker.rpc.offload import Offload
from crucible_worker.util.limits import WorkerLimits

__all__ = ["LARGE_REQUEST_DRAWS", "PROBE_WAIT_SECONDS", "MetricsService"]

# The metrics calls that need no model: from the bytes of a request to those of its response.

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


PROBE_WAIT_SECONDS = 0.05
"""Longest wait of a health check while calls at the message limit run back to back; the values below aim at it."""

LARGE_REQUEST_DRAWS = 500_000
"""A thread handles requests for pass@k from so many draws: they take some milliseconds."""

T = TypeVar("T")


class MetricsService:
    """Training metrics, over the wire."""

    def __init__(
        self,
        note: Callable[[Event], None],
        models: Mapping[type[ModelRef], Backend],
        charge: Charge,
        *,
        limits: WorkerLimits,
        offload: Offload,
    ) -> None:
        """Report each call to `note`; call `models` if a request needs it, and count their usage by `charge`."""
        self._note, self._models, self._charge, self._limits = note, models, charge, limits
        self._offload = offload

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server; threads parse large requests, not the event loop."""
        limit = self._limits.max_sequences_per_call
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["MetricsService"],
            {
                "ComputeKLSampleTrain": self._computed(functools.partial(kl_sample_train_answer, limit)),
                "ComputeKLPostUpdate": registration.over_bytes(self._kl_post_update, counted=False),
                "IncorporateKLPenalty": registration.over_bytes(self._kl_penalty, counted=False),
                "ComputeMeanNLL": self._computed(functools.partial(mean_nll_answer, limit)),
                "ComputeTrajectoryMetrics": self._computed(trajectory_answer),
                "ComputeDPOMetrics": registration.over_bytes(self._dpo, counted=False),
                "ComputeSamplingClientMetrics": self._computed(sampling_client_answer),
                "ComputeClassificationMetrics": self._computed(classification_answer),
                "ComputePassAtK": registration.over_bytes(self._pass_at_k, counted=False),
            },
        )

    def _computed(self, work: Callable[[bytes], Answer]) -> registration.Registration:
        """Register a function from a request's bytes to its answer, which needs no model."""

        def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
            async def compute(data: bytes, context: Context) -> bytes:
                return await self._answer(method.name, time.perf_counter_ns(), data, lambda: work(data))

            return registration.over_bytes(compute, counted=False)(method)

        return register

    async def _kl_post_update(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: token_codec.kl_post_update_request_from_bytes(data))
        check_number(request.logprobs, self._limits.max_sequences_per_call)
        updated, field, usage = await self._logprobs("updated", request.updated, request, started)
        work = functools.partial(kl_post_update_answer, request, updated, field, usage)
        return await self._answer("ComputeKLPostUpdate", started, data, work)

    async def _kl_penalty(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: token_codec.kl_penalty_request_from_bytes(data))
        check_number(request.logprobs, self._limits.max_sequences_per_call)
        base, field, usage = await self._logprobs("base", request.base, request, started)
        work = functools.partial(kl_penalty_answer, request, base, field, usage)
        return await self._answer("IncorporateKLPenalty", started, data, work)

    async def _dpo(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: codec.dpo_metrics_request_from_bytes(data))
        check_number(request.pairs, self._limits.max_sequences_per_call, "pairs")
        policy, reference = await concurrently(
            self._pairs("policy", request.policy, request, started),
            self._pairs("reference", request.reference, request, started),
        )
        measured = DPOMetrics(metrics=Metrics({}))
        if policy is not None:
            measured = dataclasses.replace(
                measured, chosen=policy.chosen, rejected=policy.rejected, policy_usage=policy.usage
            )
        if reference is not None:
            measured = dataclasses.replace(
                measured,
                chosen_reference=reference.chosen,
                rejected_reference=reference.rejected,
                reference_usage=reference.usage,
            )
        work = functools.partial(dpo_answer, request, measured)
        return await self._answer("ComputeDPOMetrics", started, data, work)

    async def _pairs(
        self, field: str, model: ModelRef | None, request: DPOMetricsRequest, started: int
    ) -> PairLogprobs | None:
        """What a model says of the pairs, with the cost of its usage; None without a model."""
        if model is None:
            return None
        seconds, concurrency = _seconds_left(request.deadline_ms, started), self._limits.default_concurrency
        found = await pair_logprobs(
            self._models, model, request.pairs, field=field, seconds=seconds, concurrency=concurrency
        )
        return dataclasses.replace(found, usage=self._charge(found.usage, model))

    async def _pass_at_k(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: codec.pass_at_k_request_from_bytes(data))
        # Its time does not depend on its size alone.
        large = most_draws(request.samples, request.k) > LARGE_REQUEST_DRAWS
        work = functools.partial(pass_at_k_answer, request)
        return await self._answer("ComputePassAtK", started, data, work, large=large)

    async def _logprobs(
        self, field: str, source: Any, request: KLPostUpdateRequest | KLPenaltyRequest, started: int
    ) -> tuple[Any, str, Usage | None]:
        """The given log-probabilities, or those of a model; their path in errors; and the usage of the model."""
        if isinstance(source, Ragged):
            return source, f"{field}_logprobs", None
        if not isinstance(source, ModelRef):
            return source, f"{field}.given.tensors", None
        seconds = _seconds_left(request.deadline_ms, started)
        model = f"{field}.model"
        concurrency = self._limits.default_concurrency
        found, usage = await model_logprobs(
            self._models, source, request.data, field=model, seconds=seconds, concurrency=concurrency
        )
        return found, model, self._charge(usage, source)

    async def _answer(
        self, call: str, started: int, data: bytes, work: Callable[[], Answer], *, large: bool = False
    ) -> bytes:
        response, tokens = await self._run(data, work, large=large)
        if len(response) > (limit := self._limits.max_message_bytes):
            message = f"the answer has {len(response):,} bytes; a message has at most {limit:,}. Send a smaller request"
            raise ResourceExhausted(message, reason=Reason.ANSWER_TOO_LARGE, retryable=False)
        self._note(metrics_computed(call, tokens, time.perf_counter_ns() - started))
        return response

    async def _run(self, data: bytes, work: Callable[[], T], *, large: bool = False) -> T:
        """Do the work of a request here, or in a thread if it is large by its size or by `large`."""
        return await (self._offload.in_thread(work) if large else self._offload.run(len(data), work))


def _seconds_left(deadline_ms: int | None, started: int) -> float | None:
    """Seconds until a call's deadline, from its start by the performance counter; None if it has none."""
    return None if deadline_ms is None else deadline_ms / 1000 - (time.perf_counter_ns() - started) / 1e9
