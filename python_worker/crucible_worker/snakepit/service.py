"""BridgeService: the worker as a pool of Snakepit's sees it. Decode, call, encode; errors as Snakepit tells them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import structlog

from crucible_bridge.codec.spans import parsed
from crucible_bridge.errors import BridgeError, ResourceExhausted
from crucible_bridge.status import STATUS_CODES
from crucible_worker.interceptors import Calls
from crucible_worker.interceptors.errors import mapped
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.written import Written
from crucible_worker.snakepit import failures
from crucible_worker.snakepit.event_stream import EventStream
from crucible_worker.snakepit.messages import Asked, answer, failure, read_asked
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.sessions import Sessions
from crucible_worker.snakepit.tools import LARGE_BYTES, LIST_TOOLS, ToolCall, Tools
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.telemetry.logging import bind_contextvars

__all__ = ["SERVICE", "BridgeService"]

SERVICE = pb.DESCRIPTOR.services_by_name["BridgeService"].full_name

_log = structlog.get_logger(__name__)


class BridgeService:
    """The tools of a worker, over Snakepit's wire."""

    def __init__(self, tools: Tools, written: Written, calls: Calls, *, max_message_bytes: int) -> None:
        """Execute these tools, and send the events that the worker writes."""
        self._tools = tools
        self._sessions = Sessions()
        self._events = EventStream(written, calls)
        self._max_message_bytes = max_message_bytes

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given; requests come as bytes."""
        answered: dict[str, tuple[type[Any], Callable[[Any], Awaitable[Any]]]] = {
            "Ping": (pb.PingRequest, self._ping),
            "InitializeSession": (pb.InitializeSessionRequest, self._initialize_session),
            "CleanupSession": (pb.CleanupSessionRequest, self._cleanup_session),
            "GetSession": (pb.GetSessionRequest, self._get_session),
            "Heartbeat": (pb.HeartbeatRequest, self._heartbeat),
        }
        methods: dict[str, grpc.RpcMethodHandler] = {
            name: grpc.unary_unary_rpc_method_handler(mapped(functools.partial(_parse_and_answer, request, answer)))
            for name, (request, answer) in answered.items()
        }
        methods["ExecuteTool"] = grpc.unary_unary_rpc_method_handler(self._execute_tool)
        methods["ExecuteStreamingTool"] = grpc.unary_stream_rpc_method_handler(self._execute_streaming_tool)
        methods["StreamTelemetry"] = grpc.stream_stream_rpc_method_handler(
            mapped(self._events.serve),
            request_deserializer=pb.TelemetryControl.FromString,
            response_serializer=pb.TelemetryEvent.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _ping(self, request: pb.PingRequest) -> pb.PingResponse:
        return _now(pb.PingResponse(message="pong"))

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        # Nothing here belongs to a session, so that none can have become invalid: that it answers is the answer.
        return _now(pb.HeartbeatResponse(session_valid=True))

    async def _initialize_session(self, request: pb.InitializeSessionRequest) -> pb.InitializeSessionResponse:
        self._sessions.open(request.session_id, dict(request.metadata))
        response = pb.InitializeSessionResponse(success=True)
        listed = await self._tools.execute(LIST_TOOLS, {}, {}, ToolCall())
        for tool in listed.value["tools"]:
            spec = response.available_tools[tool["name"]]
            spec.name, spec.description, spec.supports_streaming = tool["name"], tool["description"], tool["streaming"]
        return response

    async def _cleanup_session(self, request: pb.CleanupSessionRequest) -> pb.CleanupSessionResponse:
        return pb.CleanupSessionResponse(success=True, resources_cleaned=int(self._sessions.close(request.session_id)))

    async def _get_session(self, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        session = self._sessions.get(request.session_id)
        response = pb.GetSessionResponse(
            session_id=request.session_id, metadata=session.metadata, tool_count=len(self._tools.names())
        )
        response.created_at.FromNanoseconds(session.created_unix_ns)
        return response

    async def _execute_tool(self, data: bytes, context: Context) -> bytes:
        started = time.perf_counter()
        asked: Asked | None = None
        try:
            asked = read_asked(data, context.time_remaining())
            bind_contextvars(session_id=asked.call.session_id)
            parameters = await _parameters(asked)
            result = await self._tools.execute(asked.tool, parameters, asked.binary, asked.call)
            text = await self._as_json(result)
        except Exception as error:  # Snakepit wants every one of them as a response
            known = failures.told(error)
            milliseconds = _ended("tool", asked, started, known)
            return failure(_told(known, asked), milliseconds)
        return answer(result, text, _ended("tool", asked, started, None))

    async def _as_json(self, result: ToolResult) -> bytes:
        """The JSON of a result.

        Raises:
            ResourceExhausted: it does not fit into a message.
        """
        text = result.json()
        if (size := len(text) + len(result.binary or b"")) > self._max_message_bytes - LARGE_BYTES:
            raise ResourceExhausted(
                f"the answer has {size:,} bytes, a message at most {self._max_message_bytes:,}: ask for less at once",
                reason="ANSWER_TOO_LARGE",
                retryable=False,
            )
        return text

    async def _execute_streaming_tool(self, data: bytes, context: Context) -> None:
        started = time.perf_counter()
        asked: Asked | None = None
        count = 0
        try:
            asked = read_asked(data, context.time_remaining())
            bind_contextvars(session_id=asked.call.session_id)
            chunks = self._tools.stream(asked.tool, await _parameters(asked), asked.binary, asked.call)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    count += 1
                    await context.write(_chunk(asked.tool, count, json.dumps(chunk, allow_nan=False).encode("ascii")))
            await context.write(_chunk(asked.tool, count + 1, b"", is_final=True))
        except grpc.aio.BaseError:
            raise  # the client is gone
        except Exception as error:
            known = failures.told(error)
            _ended("streaming_tool", asked, started, known)
            await context.abort(STATUS_CODES[known.code], _told(known, asked))
        _ended("streaming_tool", asked, started, None)


async def _parse_and_answer(
    request: type[Any], answer: Callable[[Any], Awaitable[Any]], data: bytes, context: Context
) -> bytes:
    return (await answer(parsed(request, data))).SerializeToString()


async def _parameters(asked: Asked) -> dict[str, Any]:
    return await asyncio.to_thread(asked.parameters) if asked.call.large else asked.parameters()


def _now(message: Any) -> Any:
    message.server_time.GetCurrentTime()
    return message


def _chunk(tool: str, number: int, data: bytes, *, is_final: bool = False) -> bytes:
    return pb.ToolChunk(chunk_id=f"{tool}-{number}", data=data, is_final=is_final).SerializeToString()


def _told(error: BridgeError, asked: Asked | None) -> str:
    """The error as Snakepit reads it; where the request could not be read, nothing is known of the call."""
    return failures.as_json(error, ToolCall(), "") if asked is None else failures.as_json(error, asked.call, asked.tool)


def _ended(event: str, asked: Asked | None, started: float, error: BridgeError | None) -> int:
    """Log how a call ended; the milliseconds that it took."""
    milliseconds = (time.perf_counter() - started) * 1000
    tool = "" if asked is None else asked.tool
    correlation_id = None if asked is None else asked.call.correlation_id
    reason = "OK" if error is None else error.reason
    _log.info(event, tool=tool, correlation_id=correlation_id, reason=reason, milliseconds=round(milliseconds, 3))
    return round(milliseconds)
