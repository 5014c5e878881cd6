"""How a service registers its calls: each once, by its name, with the function that answers it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.codec import generated
from crucible_bridge.codec.field_ranges import parsed
from crucible_worker.rpc.byte_budget import WorkBound
from crucible_worker.rpc.calls import Context, Unparsed
from crucible_worker.rpc.offload import Offload

__all__ = ["Registration", "over_bytes", "over_messages", "over_types", "registered"]

Registration = Callable[[MethodDescriptor], grpc.RpcMethodHandler]
"""Makes the handler of a method."""

_MAKERS: Mapping[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""Handler constructors, by whether requests and answers are streams."""


def registered(service: ServiceDescriptor, calls: Mapping[str, Registration]) -> grpc.GenericRpcHandler:
    """The handler for a server.

    Args:
        service: as its proto declares it.
        calls: every call of it, by name, with its registration.

    Raises:
        LookupError: a call of the proto is not registered, or one is registered that the proto does not have.
    """
    if missing := service.methods_by_name.keys() - calls.keys():
        raise LookupError(f"{service.name} does not answer {', '.join(sorted(missing))}")
    if unknown := calls.keys() - service.methods_by_name.keys():
        raise LookupError(f"{service.name} has no call {', '.join(sorted(unknown))}")
    handlers = {name: register(service.methods_by_name[name]) for name, register in calls.items()}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def over_messages(function: Callable[[Any, Any], Any]) -> Registration:
    """Register a function of a call's message and context; it returns a message, or its bytes."""

    def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        return _MAKERS[method.client_streaming, method.server_streaming](
            function,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )

    return register


def over_bytes(
    function: Callable[[Any, Any], Any], *, counted: bool = True, work: WorkBound | None = None
) -> Registration:
    """Register a function of a call's bytes and context: it parses by itself, perhaps in a thread.

    Args:
        function: answers the call.
        counted: whether the elements of a request are counted before it gets one; else it bounds them by itself.
        work: bounds the work in open calls, if `counted`; None if their number alone is bounded.
    """

    def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        unparsed = Unparsed(GetMessageClass(method.input_type), work) if counted else bytes
        return _MAKERS[method.client_streaming, method.server_streaming](
            function, request_deserializer=unparsed, response_serializer=bytes
        )

    return register


def over_types(function: Callable[[Any], Any], offload: Offload) -> Registration:
    """Register a function of a request's type that returns the response's type, or a coroutine of it.

    Both are the types generated for the messages; the call's descriptor determines how they are decoded and encoded.

    Args:
        function: answers the call.
        offload: decodes large requests, and also answers them if the function is not a coroutine.

    Raises:
        LookupError: one of the messages has no such type.
    """

    def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        message = GetMessageClass(method.input_type)
        decode, encode = _conversion(method.input_type, "from"), _conversion(method.output_type, "to")

        def read(data: bytes) -> Any:
            return decode(parsed(message, data))

        def whole(data: bytes) -> bytes:
            return encode(function(read(data))).SerializeToString()

        async def answer(data: bytes, context: Context) -> bytes:
            if not inspect.iscoroutinefunction(function):
                return await offload.run(len(data), lambda: whole(data))
            request = await offload.run(len(data), lambda: read(data))
            return encode(await function(request)).SerializeToString()

        return over_bytes(answer)(method)

    return register


def _conversion(message: Descriptor, way: str) -> Callable[..., Any]:
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", message.name).lower()
    found = getattr(generated, f"{stem}_{way}_v1", None)
    if found is None:
        raise LookupError(f"{message.name} has no generated type: register a function that decodes it by itself")
    return found
