"""The one interceptor: it wraps each method once, at its first call, in all layers.

One interceptor with plain functions inside, and not one per layer: gRPC awaits every interceptor anew for every call.
The request arrives here as bytes and is parsed behind authentication and admission, so that nobody without a token
makes the worker parse 64 MiB, and so that bytes that are no message are the caller's error, not ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from crucible_bridge.errors import InvalidField
from crucible_worker.interceptors.admission import admitted
from crucible_worker.interceptors.authentication import authenticated
from crucible_worker.interceptors.calls import Calls
from crucible_worker.interceptors.deadlines import bounded
from crucible_worker.interceptors.errors import mapped
from crucible_worker.interceptors.logs import logged
from crucible_worker.interceptors.methods import Context, Handle, Method

__all__ = ["Interceptor"]


class Interceptor(grpc.aio.ServerInterceptor):
    """Logs, error mapping, authentication, admission and deadline around every method."""

    def __init__(self, calls: Calls, *, token: str | None, passed: Collection[str] = ()) -> None:
        """Guard calls by a token, where there is one; the services in `passed` guard themselves."""
        self._calls = calls
        self._token = token
        self._passed = passed
        self._wrapped: dict[str, grpc.RpcMethodHandler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Give the wrapped handler of a method; an unknown method has none, and gRPC says so."""
        path = handler_call_details.method
        wrapped = self._wrapped.get(path)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return handler
            passes = Method(path=path, streams=False).service in self._passed
            wrapped = self._wrapped[path] = handler if passes else self._wrap(path, handler)
        return wrapped

    def _wrap(self, path: str, handler: Any) -> grpc.RpcMethodHandler:
        method = Method(path=path, streams=handler.response_streaming)
        handle = _streamed(handler) if method.streams else _answered(handler)
        handle = bounded(handle, method, self._calls)
        handle = admitted(handle, method, self._calls)
        handle = authenticated(handle, method, self._token)
        handle = logged(mapped(handle), method)
        serialize = _serializer(handler)
        if handler.request_streaming:
            make = grpc.stream_stream_rpc_method_handler if method.streams else grpc.stream_unary_rpc_method_handler
            return make(handle, None, serialize)
        make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
        return make(handle, None, serialize)


def _answered(handler: Any) -> Handle:
    behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
    parse = _parser(handler)

    async def handle(request: bytes, context: Context) -> Any:
        return await behaviour(parse(request), context)

    return handle


def _streamed(handler: Any) -> Handle:
    behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
    parse = _parser(handler)

    # No asynchronous generator: a timer that fires while gRPC sends would not reach what is suspended at a yield.
    async def handle(request: Any, context: Context) -> None:
        async with contextlib.aclosing(behaviour(parse(request), context)) as responses:
            async for response in responses:
                await context.write(response)

    return handle


def _serializer(handler: Any) -> Callable[[Any], bytes]:
    """Serializes what is not bytes already: large responses are serialized by threads."""
    serialize = handler.response_serializer
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def _parser(handler: Any) -> Callable[[Any], Any]:
    deserialize = handler.request_deserializer

    def parse(request: bytes) -> Any:
        try:
            return deserialize(request)
        except DecodeError:
            raise InvalidField("request", "is not a message of this method", reason="MALFORMED_MESSAGE") from None

    async def parse_each(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for request in requests:
            yield parse(request)

    return parse_each if handler.request_streaming else parse
