"""RenderingService: decode, call, encode.

Requests and responses are bytes here: threads parse and serialize batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.codec import generated
from crucible_bridge.codec.answer_room import within_room
from crucible_bridge.codec.field_ranges import parsed
from crucible_bridge.types import ListRenderersRequest, ListRenderersResponse
from crucible_bridge.v1 import rendering_pb2 as pb
from crucible_worker.inference.model_calls import Backends
from crucible_worker.inference.rendering_calls import (
    build_prompts,
    build_supervised,
    detokenize,
    get_stop_sequences,
    list_renderers,
    parse_responses,
    tokenize,
)
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context
from crucible_worker.rpc.offload import Offload
from crucible_worker.util.limits import WorkerLimits

__all__ = ["RenderingService"]


class RenderingService:
    """The renderers and tokenizers of the worker's models, over the wire."""

    def __init__(self, models: Backends, limits: WorkerLimits, offload: Offload) -> None:
        """Open the tokenizers of these models, within the worker's limits."""
        self._models, self._limits, self._offload = models, limits, offload

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server; threads parse large requests, and serialize responses."""
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["RenderingService"],
            {
                "ListRenderers": registration.over_types(_list, self._offload),
                "BuildGenerationPrompt": self._asking(
                    generated.build_generation_prompt_request_from_v1,
                    build_prompts,
                    generated.build_generation_prompt_response_to_v1,
                ),
                "BuildSupervisedExample": self._asking(
                    generated.build_supervised_example_request_from_v1,
                    build_supervised,
                    generated.build_supervised_example_response_to_v1,
                ),
                "ParseResponse": self._asking(
                    generated.parse_response_request_from_v1,
                    parse_responses,
                    generated.parse_response_response_to_v1,
                ),
                "GetStopSequences": self._asking(
                    generated.get_stop_sequences_request_from_v1,
                    get_stop_sequences,
                    generated.get_stop_sequences_response_to_v1,
                ),
                "Tokenize": self._asking(
                    generated.tokenize_request_from_v1, tokenize, generated.tokenize_response_to_v1
                ),
                "Detokenize": self._asking(
                    generated.detokenize_request_from_v1, detokenize, generated.detokenize_response_to_v1
                ),
            },
        )

    def _asking(
        self, decode: Callable[[Any], Any], ask: Callable[..., Any], encode: Callable[[Any], Any]
    ) -> registration.Registration:
        """Register a call: its decoder, the function that answers it, and the encoder of the answer."""

        def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
            message = GetMessageClass(method.input_type)

            async def answer(data: bytes, context: Context) -> bytes:
                def read() -> Any:
                    return decode(parsed(message, data))

                request = await self._offload.run(len(data), read)
                found = await ask(self._models, request, self._limits)

                def written() -> bytes:
                    return within_room(encode(found), self._limits.max_message_bytes).SerializeToString()

                return await self._offload.in_thread(written)

            return registration.over_bytes(answer)(method)

        return register


async def _list(request: ListRenderersRequest) -> ListRenderersResponse:
    return await asyncio.to_thread(list_renderers)
