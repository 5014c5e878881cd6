"""MetricsService: decode, call, encode.

Requests and responses are bytes here: threads parse 64 MiB, and compute with it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor

from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.errors import ResourceExhausted
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    DPOMetrics,
    DPOMetricsRequest,
    KLPenaltyRequest,
    KLPostUpdateRequest,
    Metrics,
    ModelRef,
    Ragged,
    Usage,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_worker.backends.base import Backend
from crucible_worker.backends.concurrently import concurrently
from crucible_worker.engine.usage import Charge
from crucible_worker.events.run_events import metrics_computed
from crucible_worker.inference.logprobs import model_logprobs
from crucible_worker.inference.pair_logprobs import PairLogprobs, pair_logprobs
from crucible_worker.metrics.pass_at_k import most_draws
from crucible_worker.rpc import metric_answers as answers
from crucible_worker.rpc import registration
from crucible_worker.rpc.methods import Context
from crucible_worker.rpc.metric_answers import Answer
from crucible_worker.rpc.offload import Offload
from crucible_worker.util.limits import WorkerLimits

__all__ = ["LARGE_REQUEST_DRAWS", "PROBE_WAIT_SECONDS", "MetricsService"]

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
                "ComputeKLSampleTrain": self._computed(functools.partial(answers.kl_sample_train_answer, limit)),
                "ComputeKLPostUpdate": registration.over_bytes(self._kl_post_update, counted=False),
                "IncorporateKLPenalty": registration.over_bytes(self._kl_penalty, counted=False),
                "ComputeMeanNLL": self._computed(functools.partial(answers.mean_nll_answer, limit)),
                "ComputeTrajectoryMetrics": self._computed(answers.trajectory_answer),
                "ComputeDPOMetrics": registration.over_bytes(self._dpo, counted=False),
                "ComputeSamplingClientMetrics": self._computed(answers.sampling_client_answer),
                "ComputeClassificationMetrics": self._computed(answers.classification_answer),
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
        answers.check_number(request.logprobs, self._limits.max_sequences_per_call)
        updated, field, usage = await self._logprobs("updated", request.updated, request, started)
        work = functools.partial(answers.kl_post_update_answer, request, updated, field, usage)
        return await self._answer("ComputeKLPostUpdate", started, data, work)

    async def _kl_penalty(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: token_codec.kl_penalty_request_from_bytes(data))
        answers.check_number(request.logprobs, self._limits.max_sequences_per_call)
        base, field, usage = await self._logprobs("base", request.base, request, started)
        work = functools.partial(answers.kl_penalty_answer, request, base, field, usage)
        return await self._answer("IncorporateKLPenalty", started, data, work)

    async def _dpo(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: codec.dpo_metrics_request_from_bytes(data))
        answers.check_number(request.pairs, self._limits.max_sequences_per_call, "pairs")
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
        work = functools.partial(answers.dpo_answer, request, measured)
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
        work = functools.partial(answers.pass_at_k_answer, request)
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
