"""BridgeService: the worker's side of a Snakepit pool. It decodes, calls and encodes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from crucible_bridge.codec.elements import request_parsed
from crucible_bridge.errors import InvalidField
from crucible_worker.events.own_events import OwnEvents
from crucible_worker.rpc import Calls
from crucible_worker.rpc.chain import mapped
from crucible_worker.rpc.methods import Context
from crucible_worker.snakepit.event_stream import EventStream
from crucible_worker.snakepit.execution import Execution
from crucible_worker.snakepit.sessions import Sessions
from crucible_worker.snakepit.tools import LIST_TOOLS, ToolCall, Tools
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = ["MAX_CONTROL_BYTES", "SERVICE", "BridgeService"]

MAX_CONTROL_BYTES = 64 * 1024
"""A request about a session, or of a probe: it is parsed at once, and a session retains it."""
SERVICE = pb.DESCRIPTOR.services_by_name["BridgeService"].full_name


class BridgeService:
    """The tools of a worker, over Snakepit's wire."""

    def __init__(self, tools: Tools, written: OwnEvents, calls: Calls, *, max_message_bytes: int) -> None:
        """Make a service that executes these tools, and sends the events that this worker writes."""
        self._tools = tools
        self._sessions = Sessions()
        self._events = EventStream(written, calls)
        self._execution = Execution(tools, calls, max_message_bytes=max_message_bytes)

    def handler(self) -> grpc.GenericRpcHandler:
        """The handlers for a server; requests are bytes."""
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
        methods["ExecuteTool"] = grpc.unary_unary_rpc_method_handler(self._execution.execute)
        methods["ExecuteStreamingTool"] = grpc.unary_stream_rpc_method_handler(self._execution.stream)
        methods["StreamTelemetry"] = grpc.stream_stream_rpc_method_handler(
            mapped(self._events.serve),
            request_deserializer=pb.TelemetryControl.FromString,
            response_serializer=pb.TelemetryEvent.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _ping(self, request: pb.PingRequest) -> pb.PingResponse:
        return _now(pb.PingResponse(message="pong"))

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        # Nothing here belongs to a session, so no session can become invalid: any reply means that the worker works.
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


async def _parse_and_answer(
    request: type[Any], answer: Callable[[Any], Awaitable[Any]], data: bytes, context: Context
) -> bytes:
    if len(data) > MAX_CONTROL_BYTES:
        problem = f"has {len(data):,} bytes; one that executes no tool has at most {MAX_CONTROL_BYTES:,}"
        raise InvalidField("request", problem)
    return (await answer(request_parsed(request, data))).SerializeToString()


def _now(message: Any) -> Any:
    message.server_time.GetCurrentTime()
    return message
