"""The only interceptor: it wraps each method once, at its first call, in all layers.

It is one interceptor with plain functions inside, and not one per layer: gRPC awaits every interceptor again for every
call. The request is received here, as bytes, and parsed after authentication and admission: without a token, or without
room, no more than gRPC's window of a message is ever received. So every method has a stream of requests for gRPC, which
would otherwise receive the whole message before anything else happens. Bytes that are no message are the caller's
error, not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message

from crucible_bridge.codec.elements import LARGE_BYTES, memory_of_elements
from crucible_bridge.errors import BridgeError, DeadlineExceeded, InternalError, InvalidField
from crucible_bridge.reasons import Code, Reason
from crucible_bridge.status import to_status
from crucible_worker.engine.admission import draining_error
from crucible_worker.rpc.authentication import TokenFile, authenticated
from crucible_worker.rpc.calls import HEALTH, WORKER, Calls, Context, Handle, Method, Unparsed, admitted
from crucible_worker.telemetry import bind_contextvars, bound
from crucible_worker.util.error_reporter import logged, shortage
from crucible_worker.util.limits import WorkerLimits

__all__ = ["MARGIN_SECONDS", "MARGIN_SHARE", "Interceptor", "bounded", "mapped"]

# Maps errors for callers: a BridgeError is sent unchanged; of any other error only an id is sent.


def mapped(inner: Handle) -> Handle:
    """Turn errors into statuses with details; a cancelled call stays one."""
    log = structlog.get_logger("crucible_worker.rpc")

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await inner(request, context)
        except grpc.aio.InternalError as error:
            # The stream is closed: the client has disconnected, which gRPC would log as an error with a traceback.
            raise asyncio.CancelledError from error
        except grpc.aio.BaseError:
            # An abort by gRPC: the status is sent already.
            raise
        except BridgeError as error:
            bind_contextvars(reason=error.reason)  # for the line that tells how the call ended
            status = to_status(error)
        except Exception as error:
            if (lacking := shortage(error)) is not None:
                bind_contextvars(reason=lacking.reason)
                status = to_status(lacking)
            else:
                error_id = logged(log, "unexpected_error", error)
                status = to_status(InternalError(f"internal error {error_id}", metadata={"error_id": error_id}))
        return await context.abort(*status)

    return handle


# Bounds the wait of a call: gRPC's own deadline ends the call, never its evaluation.
#
# Shortly before that deadline the waiting call is answered with DEADLINE_EXCEEDED and the evaluation's id: at the
# deadline itself the client has disconnected, and would not receive the id.

MARGIN_SECONDS = 0.1
"""How long before the client's deadline the answer is sent."""

MARGIN_SHARE = 0.5
"""The largest share of the time left that the margin takes, for short deadlines."""


def bounded(inner: Handle, method: Method, calls: Calls) -> Handle:
    """End a waiting call at its deadline or when the worker drains; the evaluation continues."""
    # A Drain call waits for the drain, which must not end it.
    cut_by_drain = method.service != WORKER

    async def handle(request: Any, context: Context) -> Any:
        remaining = context.time_remaining()
        delay = None if remaining is None else remaining - min(MARGIN_SECONDS, remaining * MARGIN_SHARE)
        timer = calls.timeouts.within(delay)
        try:
            with timer:
                if not cut_by_drain:
                    return await inner(request, context)
                calls.watch(timer)
                try:
                    return await inner(request, context)
                finally:
                    calls.forget(timer)
        except TimeoutError:
            if not timer.expired():
                raise
            raise _ended(calls) from None

    return handle


def _ended(calls: Calls) -> BridgeError:
    error = draining_error() if calls.draining else DeadlineExceeded("the call's deadline is near")
    if evaluation_id := bound("evaluation_id"):
        error.metadata["evaluation_id"] = evaluation_id
    return error


# One log line per call: its code, its duration, and the fields that its service bound.

_OURS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})


def call_logged(inner: Handle, method: Method) -> Handle:
    """Bind method and peer to the call's log lines, and log how it ended."""
    log = structlog.get_logger("crucible_worker.rpc").bind()
    name = f"{method.service.rpartition('.')[2]}.{method.name}"

    async def handle(request: Any, context: Context) -> Any:
        # Each call runs in a separate task, and so in a separate context: nothing needs to be unbound.
        bind_contextvars(method=name, peer=context.peer())
        started = time.perf_counter()
        try:
            response = await inner(request, context)
        except grpc.aio.AbortError:
            code = context.code()
            (log.error if code in _OURS else log.info)("call", code=code.name, milliseconds=_since(started))
            raise
        except (asyncio.CancelledError, grpc.aio.BaseError):
            # The client has disconnected: it cancelled, or its stream is closed.
            (log.debug if method.quiet else log.info)("call", code=Code.CANCELLED.value, milliseconds=_since(started))
            raise
        (log.debug if method.quiet else log.info)("call", code="OK", milliseconds=_since(started))
        return response

    return handle


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


_END: Any = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
"""The value of a read when there are no more messages."""

_UNBOUNDED = contextlib.nullcontext()


class Interceptor(grpc.aio.ServerInterceptor):
    """Logs, error mapping, authentication, admission and deadline around every method."""

    def __init__(
        self, calls: Calls, limits: WorkerLimits, *, tokens: TokenFile | None, passed: Collection[str] = ()
    ) -> None:
        """Check calls by the tokens, if any, and by these limits; the services in `passed` check their own calls."""
        self._calls = calls
        self._limits = limits
        self._tokens = tokens
        self._passed = passed
        self._wrapped: dict[str, grpc.RpcMethodHandler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the wrapped handler of a method; an unknown method has none, and gRPC reports it."""
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
        parse = _Parse(handler)
        behave = _streamed(handler) if method.streams else _answered(handler)
        handle = self._with_each(behave, parse) if handler.request_streaming else self._with_one(behave, parse, method)
        handle = bounded(handle, method, self._calls)
        handle = admitted(handle, method, self._calls)
        handle = authenticated(handle, method, self._tokens)
        handle = call_logged(mapped(handle), method)
        serialize = _serializer(handler)
        make = grpc.stream_stream_rpc_method_handler if method.streams else grpc.stream_unary_rpc_method_handler
        return make(handle, None, serialize)

    # Not by gRPC's iterator: that would keep the last message until the garbage collector runs.
    def _with_one(self, inner: Handle, parse: _Parse, method: Method) -> Handle:
        """Receive the single message of a call; its bytes count until the call ends."""
        calls, limits, bound, open_to_all = self._calls, self._limits, parse.work, method.service == HEALTH
        seconds = limits.health_request_seconds if open_to_all else limits.request_seconds

        async def handle(_: object, context: Context) -> Any:
            if bound is not None:
                bound.refuse_if_full()
            arrival = calls.timeouts.within(seconds)
            try:
                with calls.arrivals.bounded(arrival) if open_to_all else arrival:
                    data = await context.read()
            except TimeoutError:
                if not arrival.expired():
                    raise
                message = f"the request has not arrived within {seconds:g} s"
                raise DeadlineExceeded(message, reason=Reason.REQUEST_TOO_SLOW) from None
            if data is _END:
                raise InvalidField("request", "is missing", reason=Reason.MALFORMED_MESSAGE)
            with calls.room.working_on(len(data)) as work, _UNBOUNDED if bound is None else bound.taken(data):
                if parse.counts(len(data)):
                    calls.room.grow(work, await parse.memory_of_elements(data))
                message = parse(data)
                del data  # it may be large
                return await inner(message, context)

        return handle

    def _with_each(self, inner: Handle, parse: _Parse) -> Handle:
        """Receive the messages of a call; the bytes of each count until the next is read.

        The first is refused if there is no room for it. Later ones wait, as a refusal would lose the work of the call;
        meanwhile no more of the stream is received.
        """
        calls, seconds = self._calls, self._limits.request_seconds

        async def each(context: Context) -> AsyncIterator[Any]:
            first = True
            while (data := await context.read()) is not _END:
                size, room = len(data), calls.room
                place = room.working_on(size) if first else await room.working_on_in_turn(size, calls.timeouts, seconds)
                with place as work:
                    if parse.counts(size):
                        more = await parse.memory_of_elements(data)
                        room.grow(work, more) if first else work.add(more)
                    first = False
                    yield parse(data)

        async def handle(_: object, context: Context) -> Any:
            return await inner(each(context), context)

        return handle


def _answered(handler: Any) -> Handle:
    return handler.stream_unary if handler.request_streaming else handler.unary_unary


def _streamed(handler: Any) -> Handle:
    behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream

    # No asynchronous generator: a timer that fires while gRPC sends could not interrupt one suspended at a yield.
    async def handle(request: Any, context: Context) -> None:
        async with contextlib.aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                await context.write(response)

    return handle


def _serializer(handler: Any) -> Callable[[Any], bytes]:
    """Serializes messages; large responses are bytes already, serialized by threads."""
    serialize = handler.response_serializer
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def _message_of(deserialize: Any) -> type[Message] | None:
    """What a deserializer reads; None if it is bytes that count nothing but themselves."""
    if isinstance(deserialize, Unparsed):
        return deserialize.message
    holder: Any = getattr(deserialize, "__self__", None)  # of a message's FromString
    return holder if isinstance(holder, type) and issubclass(holder, Message) else None


class _Parse:
    """Parses the requests of a method."""

    def __init__(self, handler: Any) -> None:
        self._deserialize = handler.request_deserializer
        self._message = _message_of(self._deserialize)
        self.work = self._deserialize.work if isinstance(self._deserialize, Unparsed) else None
        """Bounds the work in calls of the method; None if their number alone is bounded."""

    def counts(self, size: int) -> bool:
        """Whether the elements of a request of so many bytes are counted first."""
        return size >= LARGE_BYTES and self._message is not None

    async def memory_of_elements(self, data: bytes) -> int:
        """Bytes that they need in addition, once the request is parsed."""
        assert self._message is not None, "nothing is known of the request's elements"
        return await asyncio.to_thread(memory_of_elements, self._message, data)

    def __call__(self, data: bytes) -> Any:
        """The message."""
        try:
            return self._deserialize(data)
        except DecodeError:
            raise InvalidField("request", "is not a message of this method", reason=Reason.MALFORMED_MESSAGE) from None
