"""ModelService: decode, call, encode.

Requests and responses are bytes here: threads parse and serialize batches.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.codec import model_calls as codec
from crucible_bridge.codec.field_ranges import parsed
from crucible_bridge.types import LogprobsAnswer, LogprobsRequest, ModelRef
from crucible_bridge.v1 import models_pb2 as pb
from crucible_worker.backends.base import Backend
from crucible_worker.engine.usage import Charge
from crucible_worker.inference.logprobs import ask_logprobs
from crucible_worker.inference.model_calls import ask_forward, ask_samples
from crucible_worker.inference.teachers import ask_teachers
from crucible_worker.journal.usage import UsageSum
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context
from crucible_worker.rpc.offload import Offload
from crucible_worker.util.limits import WorkerLimits

__all__ = ["ModelService"]


class ModelService:
    """The worker's models, over the wire."""

    def __init__(
        self, models: Mapping[type[ModelRef], Backend], charge: Charge, limits: WorkerLimits, offload: Offload
    ) -> None:
        """Call these models, within the worker's limits; `charge` counts their usage."""
        self._models, self._charge, self._limits = models, charge, limits
        self._offload = offload

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server; threads parse large requests, not the event loop."""
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["ModelService"],
            {
                "Sample": self._asking(codec.sample_request_from_v1, ask_samples, codec.sample_answer_to_v1),
                "ComputeLogprobs": self._asking(
                    codec.logprobs_request_from_v1, _ask_logprobs, codec.logprobs_answer_to_v1
                ),
                "Forward": self._asking(codec.forward_request_from_v1, ask_forward, codec.forward_answer_to_v1),
            },
        )

    def _asking(
        self, decode: Callable[[Any], Any], ask: Callable[..., Any], encode: Callable[[Any, int], Any]
    ) -> registration.Registration:
        """Register a call: its decoder, the function that calls the models, and the encoder of the answer."""

        def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
            message = GetMessageClass(method.input_type)

            async def answer(data: bytes, context: Context) -> bytes:
                received = asyncio.get_running_loop().time()

                def read() -> Any:
                    return decode(parsed(message, data))

                request = await self._offload.run(len(data), read)
                answer = await ask(self._models, request, limits=self._limits, received=received)
                answer = self._charged(answer, request)
                most = self._limits.max_message_bytes
                # Many tensors, whatever the size of the request.
                return await self._offload.in_thread(lambda: encode(answer, most).SerializeToString())

            return registration.over_bytes(answer)(method)

        return register

    def _charged(self, answer: Any, request: Any) -> Any:
        """The answer with the cost of its usage, which is counted: that of each teacher by itself."""
        model: Any = request.model
        if not isinstance(request, LogprobsRequest) or model is not None:
            return dataclasses.replace(answer, usage=self._charge(answer.usage, model))
        teachers = tuple(
            dataclasses.replace(took, usage=self._charge(took.usage, teacher.model))
            for took, teacher in zip(answer.teachers, request.teachers)
        )
        return dataclasses.replace(answer, teachers=teachers, usage=UsageSum.of(took.usage for took in teachers).usage)


async def _ask_logprobs(
    models: Mapping[type[ModelRef], Backend], request: LogprobsRequest, *, limits: WorkerLimits, received: float
) -> LogprobsAnswer:
    """Ask one model, or teachers together."""
    ask = ask_teachers if request.teachers else ask_logprobs
    return await ask(models, request, limits=limits, received=received)
