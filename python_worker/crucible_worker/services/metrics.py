"""MetricsService: decode, call, encode.

Requests and responses are bytes here: parsing 64 MiB, like computing with it, is a thread's work.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import grpc

from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.events import Event
from crucible_bridge.types import KLPenaltyRequest, KLPostUpdateRequest, ModelRef, Ragged
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_worker.backends.base import Backend
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.logprobs import model_logprobs
from crucible_worker.runs.run_events import metrics_computed
from crucible_worker.services.metric_answers import ANSWERS, Answer, kl_penalty_answer, kl_post_update_answer

__all__ = ["LARGE_REQUEST_BYTES", "PROBE_WAIT_SECONDS", "THREADS", "MetricsService"]

PROBE_WAIT_SECONDS = 0.05
"""What a health check should wait at most while calls at the message limit run back to back; those below aim at it."""

LARGE_REQUEST_BYTES = 64 * 1024
"""Requests from here on are a thread's: many tiny tensors take longer than a probe may wait."""

THREADS = 2
"""Large calls at work at once: with each one more, the event loop waits longer for its turn at the interpreter."""

T = TypeVar("T")


class MetricsService:
    """Training metrics, over the wire."""

    def __init__(
        self, note: Callable[[Event], None], models: Mapping[type[ModelRef], Backend], *, concurrency: int
    ) -> None:
        """Tell of each call by `note`; ask `models` for at most so many sequences of a call at once."""
        self._note, self._models, self._concurrency = note, models, concurrency
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="metrics")

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given: the generated registration would parse on the event loop."""
        own = {"ComputeKLPostUpdate": self._kl_post_update, "IncorporateKLPenalty": self._kl_penalty}
        service = pb.DESCRIPTOR.services_by_name["MetricsService"]
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                own.get(name) or functools.partial(self._compute, name, ANSWERS[name]),
                request_deserializer=bytes,
                response_serializer=bytes,
            )
            for name in service.methods_by_name
        }
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def close(self) -> None:
        """Let the threads go, once no call is open."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _compute(self, call: str, work: Callable[[bytes], Answer], data: bytes, context: Context) -> bytes:
        return await self._answer(call, time.perf_counter_ns(), data, lambda: work(data))

    async def _kl_post_update(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: token_codec.kl_post_update_request_from_bytes(data))
        updated, field = await self._logprobs("updated", request.updated, request, started)
        work = functools.partial(kl_post_update_answer, request, updated, field)
        return await self._answer("ComputeKLPostUpdate", started, data, work)

    async def _kl_penalty(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter_ns()
        request = await self._run(data, lambda: token_codec.kl_penalty_request_from_bytes(data))
        base, field = await self._logprobs("base", request.base, request, started)
        work = functools.partial(kl_penalty_answer, request, base, field)
        return await self._answer("IncorporateKLPenalty", started, data, work)

    async def _logprobs(
        self, field: str, source: Any, request: KLPostUpdateRequest | KLPenaltyRequest, started: int
    ) -> tuple[Any, str]:
        """Those given, or those of a model; and how errors name them."""
        if isinstance(source, Ragged):
            return source, f"{field}_logprobs"
        if not isinstance(source, ModelRef):
            return source, f"{field}.given.tensors"
        seconds = None
        if request.deadline_ms is not None:
            seconds = request.deadline_ms / 1000 - (time.perf_counter_ns() - started) / 1e9
        model = f"{field}.model"
        return await model_logprobs(
            self._models, source, request.data, field=model, seconds=seconds, concurrency=self._concurrency
        ), model

    async def _answer(self, call: str, started: int, data: bytes, work: Callable[[], Answer]) -> bytes:
        response, tokens = await self._run(data, work)
        self._note(metrics_computed(call, tokens, time.perf_counter_ns() - started))
        return response

    async def _run(self, data: bytes, work: Callable[[], T]) -> T:
        """Do the work of a request where its size says."""
        if len(data) < LARGE_REQUEST_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
