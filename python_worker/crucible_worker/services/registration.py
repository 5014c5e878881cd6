"""How a service registers its calls: each once, by its name, with the function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

__all__ = ["Registration", "over_bytes", "over_messages", "registered"]

Registration = Callable[[MethodDescriptor], grpc.RpcMethodHandler]
"""Makes the handler of a method."""

_MAKERS: Mapping[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""By whether requests and answers are streams."""


def registered(service: ServiceDescriptor, calls: Mapping[str, Registration]) -> grpc.GenericRpcHandler:
    """What a server is given.

    Args:
        service: as its proto declares it.
        calls: every call of it, by name, with what answers it.

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
    """Register a function of a call's message and context; it answers with a message, or with its bytes."""

    def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        return _MAKERS[method.client_streaming, method.server_streaming](
            function,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )

    return register


def over_bytes(function: Callable[[Any, Any], Any]) -> Registration:
    """Register a function of a call's bytes and context: it parses by itself, which may be a thread's work."""

    def register(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        return _MAKERS[method.client_streaming, method.server_streaming](
            function, request_deserializer=bytes, response_serializer=bytes
        )

    return register
