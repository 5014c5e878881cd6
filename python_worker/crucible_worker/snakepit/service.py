"""BridgeService: the worker's side of a Snakepit pool. It decodes, executes tools, keeps sessions, and encodes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
import structlog

from crucible_bridge.codec.bulk import Encoder
from crucible_bridge.codec.elements import MAX_ELEMENTS, request_parsed
from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, content_range, plainly, split
from crucible_bridge.errors import BridgeError, InvalidField, NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.status import STATUS_CODES
from crucible_bridge.types import MAX_MAP_ENTRIES
from crucible_worker.events.streams import OwnEvents
from crucible_worker.rpc import Calls
from crucible_worker.rpc.calls import Context
from crucible_worker.rpc.chain import mapped
from crucible_worker.rpc.offload import LARGE_BYTES
from crucible_worker.snakepit import tools
from crucible_worker.snakepit.arguments import Binary
from crucible_worker.snakepit.event_stream import EventStream
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.tools import LIST_TOOLS, ToolCall, Tools
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.parsing import aside_if_large, parts_of, uncollected

__all__ = [
    "CORRELATION_KEY",
    "FRAME_BYTES",
    "MAX_CONTROL_BYTES",
    "MAX_PARTS",
    "MAX_SESSIONS",
    "MAX_SESSIONS_BYTES",
    "SERVICE",
    "BridgeService",
    "Execution",
    "Sessions",
    "SnakepitSession",
    "ToolRequest",
    "answer",
    "failure",
    "read_tool_request",
]

# Snakepit's requests and responses of tools <-> a tool's parameters and results.
#
# A large request is read in place, without a copy: protobuf would copy its binary parameters twice.

CORRELATION_KEY = "correlation_id"
"""The key of a request's metadata."""
MAX_PARTS = MAX_ELEMENTS
"""Lists, objects and texts of the parameters of a call."""

# The value that Snakepit itself writes there, and does not read.
_TYPE_URL = "type.googleapis.com/google.protobuf.StringValue"

_BINARY = pb.ExecuteToolRequest.BINARY_PARAMETERS_FIELD_NUMBER
_BINARY_RESULT = pb.ExecuteToolResponse.BINARY_RESULT_FIELD_NUMBER
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A request to execute a tool; its parameters are still JSON."""

    tool: str
    """Which one."""
    call: ToolCall
    """What is known in addition to the parameters."""
    json: Mapping[str, bytes]
    """The parameters' JSON, by name."""
    binary: Mapping[str, Binary]
    """Binary parameters, by name; in a large request they are views of it."""

    def parameters(self) -> dict[str, Any]:
        """The parameters.

        Raises:
            InvalidField: one of them is not JSON, or they have more than `MAX_PARTS`.
        """
        parts = {name: parts_of(text) for name, text in self.json.items()}
        if sum(parts.values()) > MAX_PARTS:
            problem = f"all parameters together have more than {MAX_PARTS:,} lists, objects and texts"
            raise InvalidField(max(parts, key=parts.__getitem__), f"has the most of them: {problem}")
        return {name: _value(name, text) for name, text in self.json.items()}


def read_tool_request(data: bytes, deadline: float | None) -> ToolRequest:
    """Read a request.

    Args:
        data: an ExecuteToolRequest.
        deadline: when the caller stops waiting, by the event loop's clock; None if unknown.

    Raises:
        InvalidField: the bytes are not such a message.
    """
    message, binary = (
        _small(data)
        if len(data) < LARGE_BYTES
        else plainly(pb.ExecuteToolRequest, data, _in_place, parse=request_parsed)
    )
    parameters = {name: message.parameters[name].value for name in message.parameters}
    return ToolRequest(
        tool=message.tool_name,
        call=ToolCall(
            correlation_id=message.metadata.get(CORRELATION_KEY) or None,
            session_id=message.session_id,
            deadline=deadline,
            large=sum(map(len, parameters.values())) >= LARGE_BYTES,
        ),
        json=parameters,
        binary=binary,
    )


def answer(result: ToolResult, text: bytes, milliseconds: int) -> bytes:
    """The ExecuteToolResponse of a tool that succeeded; `text` is the JSON of the result's value."""
    message = pb.ExecuteToolResponse(success=True, metadata=dict(result.metadata), execution_time_ms=milliseconds)
    message.result.type_url, message.result.value = _TYPE_URL, text
    if not result.binary:
        return message.SerializeToString()
    pieces = Encoder()
    pieces.add_bytes(_BINARY_RESULT, result.binary)
    return pieces.joined(message)


def failure(text: str, milliseconds: int) -> bytes:
    """The ExecuteToolResponse of a tool that failed; `text` is Snakepit's JSON of an error."""
    return pb.ExecuteToolResponse(error_message=text, execution_time_ms=milliseconds).SerializeToString()


def _small(data: bytes) -> tuple[pb.ExecuteToolRequest, dict[str, Binary]]:
    message = request_parsed(pb.ExecuteToolRequest, data)
    return message, {name: message.binary_parameters[name] for name in message.binary_parameters}


def _in_place(data: bytes) -> tuple[pb.ExecuteToolRequest, dict[str, Binary]]:
    spans, rest = split(data, (0, len(data)), (_BINARY,))
    if len(spans[_BINARY]) > MAX_MAP_ENTRIES:
        raise InvalidField("binary_parameters", f"has more than {MAX_MAP_ENTRIES:,} entries")
    return request_parsed(pb.ExecuteToolRequest, rest), dict(_entry(data, span) for span in spans[_BINARY])


def _entry(data: bytes, span: FieldRange) -> tuple[str, Binary]:
    """An entry of a map from text to bytes."""
    at, end = span
    name, content = b"", memoryview(b"")
    while at < end:
        number, found, at = content_range(data, at)
        if found is None or number not in (_ENTRY_KEY, _ENTRY_VALUE):
            raise NeedsFallback
        begin, stop = found
        if number == _ENTRY_KEY:
            name = data[begin:stop]
        else:
            content = memoryview(data)[begin:stop]
    if at != end:
        raise NeedsFallback
    try:
        return name.decode(), content
    except UnicodeDecodeError:
        raise NeedsFallback from None


def _value(name: str, text: bytes) -> Any:
    try:
        with uncollected(len(text)):
            return json.loads(text)
    except (ValueError, RecursionError):
        # The error's text would contain the value.
        raise InvalidField(name, "is not JSON that can be read", reason=Reason.MALFORMED_JSON) from None


# The sessions that Elixir opens: returned on request, without effect on tools.

MAX_SESSIONS = 1024
"""Sessions that are stored; the oldest are removed first."""
MAX_SESSIONS_BYTES = 64 * 1024 * 1024
"""Memory of those that are stored, together."""

_ENTRY_BYTES = 256
"""Memory of an entry, a key and its value, besides their characters."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnakepitSession:
    """A session as Elixir opened it."""

    metadata: Mapping[str, str]
    """The request of Elixir."""
    created_unix_ns: int
    """When, Unix time in nanoseconds."""
    size: int
    """Bytes of memory, roughly."""


class Sessions:
    """The sessions of this worker."""

    def __init__(self) -> None:
        self._sessions: dict[str, SnakepitSession] = {}
        self._size = 0

    def open(self, session_id: str, metadata: Mapping[str, str]) -> None:
        """Open a session; an open one is not changed."""
        if session_id in self._sessions:
            return
        texts = (session_id, *metadata.keys(), *metadata.values())
        size = sum(map(sys.getsizeof, texts)) + _ENTRY_BYTES * (1 + len(metadata))
        self._sessions[session_id] = SnakepitSession(metadata=metadata, created_unix_ns=time.time_ns(), size=size)
        self._size += size
        while len(self._sessions) > MAX_SESSIONS or self._size > MAX_SESSIONS_BYTES:
            self.close(next(iter(self._sessions)))

    def close(self, session_id: str) -> bool:
        """End a session; returns whether there was one."""
        session = self._sessions.pop(session_id, None)
        self._size -= 0 if session is None else session.size
        return session is not None

    def get(self, session_id: str) -> SnakepitSession:
        """A session.

        Raises:
            NotFound: none of this name is open.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound("there is no such session", reason=Reason.UNKNOWN_SESSION, field="session_id")
        return session


# Tools are executed; errors are returned in Snakepit's form, in the response or as a status.

FRAME_BYTES = 1024
"""Room in a response for everything except its JSON and its bytes, such as metadata and times."""

_log = structlog.get_logger(__name__)


class Execution:
    """Executes tools; requests and responses are bytes."""

    def __init__(self, tools: Tools, calls: Calls, *, max_message_bytes: int) -> None:
        """Execute these tools; their requests count among `calls`, and an answer has at most so many bytes."""
        self._tools = tools
        self._calls = calls
        self._max_message_bytes = max_message_bytes

    async def execute(self, data: bytes, context: Context) -> bytes:
        """ExecuteTool."""
        started = time.perf_counter()
        asked: ToolRequest | None = None
        try:
            with self._calls.room.working_on(len(data)):
                asked = await _read(data, context.time_remaining())
                bind_contextvars(session_id=asked.call.session_id)
                parameters = await _parameters(asked)
                result = await self._tools.execute(asked.tool, parameters, asked.binary, asked.call)
                text = await self._as_json(result)
        except Exception as error:  # Snakepit expects every exception as a response
            known = tools.bridge_error(error)
            milliseconds = _ended("tool", asked, started, known)
            return failure(_error_text(known, asked), milliseconds)
        return answer(result, text, _ended("tool", asked, started, None))

    async def _as_json(self, result: ToolResult) -> bytes:
        """The JSON of a result.

        Raises:
            ResourceExhausted: it does not fit into a message.
        """
        text = result.json()
        if (size := len(text) + len(result.binary or b"")) > self._max_message_bytes - FRAME_BYTES:
            raise ResourceExhausted(
                f"the answer has {size:,} bytes; a message at most {self._max_message_bytes:,}. Send a smaller request",
                reason=Reason.ANSWER_TOO_LARGE,
                retryable=False,
            )
        return text

    async def stream(self, data: bytes, context: Context) -> None:
        """ExecuteStreamingTool."""
        started = time.perf_counter()
        asked: ToolRequest | None = None
        count = 0
        try:
            with self._calls.room.working_on(len(data)):
                asked = await _read(data, context.time_remaining())
                bind_contextvars(session_id=asked.call.session_id)
                chunks = self._tools.stream(asked.tool, await _parameters(asked), asked.binary, asked.call)
                async with contextlib.aclosing(chunks):
                    async for chunk in chunks:
                        count += 1
                        text = json.dumps(chunk, allow_nan=False).encode("ascii")
                        await context.write(_chunk(asked.tool, count, text))
                await context.write(_chunk(asked.tool, count + 1, b"", is_final=True))
        except grpc.aio.InternalError as error:
            raise asyncio.CancelledError from error  # the client is gone: not an error of the worker
        except Exception as error:
            known = tools.bridge_error(error)
            _ended("streaming_tool", asked, started, known)
            await context.abort(STATUS_CODES[known.code], _error_text(known, asked))
        _ended("streaming_tool", asked, started, None)


async def _read(data: bytes, seconds: float | None) -> ToolRequest:
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    return await aside_if_large(len(data), lambda: read_tool_request(data, deadline))


async def _parameters(asked: ToolRequest) -> dict[str, Any]:
    return await asyncio.to_thread(asked.parameters) if asked.call.large else asked.parameters()


def _chunk(tool: str, number: int, data: bytes, *, is_final: bool = False) -> bytes:
    return pb.ToolChunk(chunk_id=f"{tool}-{number}", data=data, is_final=is_final).SerializeToString()


def _error_text(error: BridgeError, asked: ToolRequest | None) -> str:
    """The error in Snakepit's form; if the request could not be read, nothing is known about the call."""
    return (
        tools.failure_as_json(error, ToolCall(), "")
        if asked is None
        else tools.failure_as_json(error, asked.call, asked.tool)
    )


def _ended(event: str, asked: ToolRequest | None, started: float, error: BridgeError | None) -> int:
    """Log how a call ended; returns the milliseconds that it took."""
    milliseconds = (time.perf_counter() - started) * 1000
    tool = "" if asked is None else asked.tool
    correlation_id = None if asked is None else asked.call.correlation_id
    reason = "OK" if error is None else error.reason
    _log.info(event, tool=tool, correlation_id=correlation_id, reason=reason, milliseconds=round(milliseconds, 3))
    return round(milliseconds)


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
