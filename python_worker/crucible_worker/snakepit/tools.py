"""Every call of the worker as a tool: JSON in, JSON out, and in between the same handlers that gRPC calls.

A tool reads its parameters into the request of a call of `crucible_bridge.v1`, and passes it to the method handler
which the worker's services registered. So decoding, admission, limits, deadlines and problems are those of the call.
Errors are those Python exceptions that Snakepit knows by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import BridgeError, Code, InternalError, InvalidField, NotFound, clipped
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_worker.rpc.calls import Calls, Handle, Handlers, Method, Unparsed, admitted
from crucible_worker.rpc.chain import bounded
from crucible_worker.rpc.offload import LARGE_BYTES, Offload
from crucible_worker.snakepit.arguments import RESULT_FORMAT, RESULT_FORMATS, Arguments, Binary
from crucible_worker.snakepit.catalogue import TOOLS, Tool, parameters_schema
from crucible_worker.snakepit.results import Output, ToolResult
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.error_reporter import logged, shortage

__all__ = [
    "LIST_TOOLS",
    "MAX_FACT_BYTES",
    "MAX_MESSAGE_BYTES",
    "TYPES_BY_CODE",
    "TYPES_BY_REASON",
    "ToolCall",
    "ToolResult",
    "Tools",
    "bridge_error",
    "failure_as_json",
    "python_error",
]

LIST_TOOLS = "list_tools"
"""The only tool that is not a call: it lists all tools."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Facts about a call in addition to its parameters."""

    correlation_id: str | None = None
    """Correlation id for log lines, and for the events of an evaluation without one."""
    session_id: str = ""
    """Snakepit's session; included in errors, not interpreted."""
    deadline: float | None = None
    """When the caller stops waiting, by the event loop's clock; None if unknown."""
    large: bool = False
    """Whether the JSON of the parameters is large: reading it is then a thread's work."""


class _Context:
    """The context that the layers and handlers of a call use."""

    def __init__(self, call: ToolCall, write: Callable[[Any], Any] | None = None) -> None:
        self._deadline = call.deadline
        self.write = write
        """The queue of a stream's messages."""

    def peer(self) -> str:
        """Unknown: Snakepit calls on behalf of all its users."""
        return ""

    def time_remaining(self) -> float | None:
        """Seconds until the caller stops waiting; None if unknown."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - asyncio.get_running_loop().time())


class Tools:
    """The tools of a worker; of one event loop."""

    def __init__(self, handlers: Handlers, calls: Calls, offload: Offload, *, max_sequences: int) -> None:
        """Offer the calls of these handlers; they count among `calls`, and a metric has at most so many sequences."""
        self._max_sequences, self._offload = max_sequences, offload
        self._tools = {tool.name: tool for tool in TOOLS}
        self._open = 0
        self._none_open = asyncio.Event()
        self._handles: dict[str, Handle] = {}
        for tool in TOOLS:
            handler = handlers.find(tool.path)
            method = Method(path=tool.path, streams=tool.streams)
            inner = self._streamed(tool, handler) if tool.streams else self._answered(tool, handler)
            self._handles[tool.name] = admitted(bounded(inner, method, calls), method, calls)

    def names(self) -> tuple[str, ...]:
        """Every tool, in alphabetical order."""
        return tuple(sorted((*self._tools, LIST_TOOLS)))

    def streaming(self, name: str) -> bool:
        """Whether a tool answers with a stream.

        Raises:
            NotFound: there is no such tool.
        """
        return name != LIST_TOOLS and self._tool(name).streams

    async def execute(
        self, name: str, parameters: Mapping[str, Any], binary: Mapping[str, Binary], call: ToolCall
    ) -> ToolResult:
        """Run a tool that answers once.

        Args:
            name: the tool's name.
            parameters: JSON values by name.
            binary: bytes by name, which parameters refer to.
            call: further facts.

        Raises:
            NotFound: there is no such tool.
            InvalidField: a parameter is unknown, missing or wrong; the field says which.
            BridgeError: see the tool's call.
        """
        if name == LIST_TOOLS:
            return _listed(self._tools.values(), parameters, binary)
        if self._tool(name).streams:
            raise InvalidField("tool_name", f"is {name!r}, which answers with a stream: execute it as a stream")
        _bind(name, call)
        return await self._counted(name, (parameters, binary, call), _Context(call))

    async def stream(
        self, name: str, parameters: Mapping[str, Any], binary: Mapping[str, Binary], call: ToolCall
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Run a tool that answers with a stream of JSON objects; closing the generator ends it.

        Arguments and errors are those of `execute`.
        """
        if not self.streaming(name):
            raise InvalidField("tool_name", f"is {name!r}, which answers once: execute it, not as a stream")
        _bind(name, call)
        chunks: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1)
        context = _Context(call, chunks.put)
        # A separate task: the deadline and a drain then end it even if the reader is slow.
        running = asyncio.ensure_future(self._counted(name, (parameters, binary, call), context))
        try:
            while (chunk := await _next(chunks, running)) is not None:
                yield chunk
        finally:
            await _left(running)

    async def ended(self) -> None:
        """Wait until no tool runs; a drain has notified the running ones."""
        while self._open:
            self._none_open.clear()
            await self._none_open.wait()

    async def _counted(self, name: str, asked: Any, context: _Context) -> Any:
        self._open += 1
        try:
            return await self._handles[name](asked, context)
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    def _tool(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(f"there is no tool {clipped(name)}; {LIST_TOOLS} names all", reason=Reason.UNKNOWN_TOOL)
        return tool

    def _answered(self, tool: Tool, handler: Any) -> Handle:
        read = handler.request_deserializer
        bound = read.work if isinstance(read, Unparsed) else None
        takes_bytes = isinstance(read, Unparsed) or read is bytes

        async def handle(asked: Any, context: Any) -> ToolResult:
            arguments, request = await self._read(tool, asked, takes_bytes)
            try:
                with contextlib.nullcontext() if bound is None else bound.taken(request):
                    response = await handler.unary_unary(request, context)
            except BridgeError as error:
                raise arguments.named(error) from error.__cause__
            return await self._written(tool, arguments, response)

        return handle

    def _streamed(self, tool: Tool, handler: Any) -> Handle:
        async def handle(asked: Any, context: Any) -> None:
            arguments, request = await self._read(tool, asked, False)
            if arguments.result_format != RESULT_FORMATS[0]:
                raise InvalidField(RESULT_FORMAT, "is for tools that answer once: a stream's chunks are JSON")
            async with contextlib.aclosing(handler.unary_stream(request, context)) as responses:
                async for response in responses:
                    result = await self._written(tool, arguments, response)
                    await context.write(result.value)

        return handle

    async def _read(self, tool: Tool, asked: Any, takes_bytes: bool) -> tuple[Arguments, Any]:
        parameters, binary, call = asked

        def read() -> tuple[Arguments, Any]:
            arguments = Arguments(
                parameters, binary, correlation_id=call.correlation_id, max_sequences=self._max_sequences
            )
            try:
                request = tool.read(arguments)
            except BridgeError as error:
                raise arguments.named(error) from error.__cause__
            arguments.refuse_unknown()
            if takes_bytes and not isinstance(request, bytes):
                request = request.SerializeToString()
            return arguments, request

        return await self._offload.in_thread(read) if call.large else read()

    async def _written(self, tool: Tool, arguments: Arguments, response: Any) -> ToolResult:
        size = len(response) if isinstance(response, bytes) else response.ByteSize()

        def write() -> ToolResult:
            message = tool.response.FromString(response) if isinstance(response, bytes) else response
            output = Output(arguments.result_format)
            result = output.result(tool.write(arguments, message, output))
            return result if size < LARGE_BYTES else dataclasses.replace(result, text=result.json())

        return await self._offload.run(size, write)


def _bind(name: str, call: ToolCall) -> None:
    known = {} if call.correlation_id is None else {"correlation_id": call.correlation_id}
    bind_contextvars(tool=name, **known)


async def _next(chunks: asyncio.Queue[dict[str, Any]], running: asyncio.Future[Any]) -> dict[str, Any] | None:
    """The next message; None at the end; raises the error of the call."""
    getting = asyncio.ensure_future(chunks.get())
    try:
        if chunks.empty():
            await asyncio.wait((getting, running), return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        # The last message and the end may arrive in one turn of the loop.
        if not chunks.empty():
            return chunks.get_nowait()
        running.result()
        return None
    finally:
        getting.cancel()


async def _left(running: asyncio.Future[Any]) -> None:
    """End the call of a stream after its reader; only a bug of the call is still reported."""
    running.cancel()
    await asyncio.wait((running,))
    if not running.cancelled() and (error := running.exception()) is not None and not isinstance(error, BridgeError):
        raise error


def _listed(tools: Iterable[Tool], parameters: Mapping[str, Any], binary: Mapping[str, Binary]) -> ToolResult:
    arguments = Arguments(parameters, binary)
    arguments.refuse_unknown()
    listed = [
        {
            "name": tool.name,
            "description": tool.description,
            "streaming": tool.streams,
            "parameters": parameters_schema(tool),
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    return Output(arguments.result_format).result({"tools": listed})


# Errors for a tool's caller: one of the Python exceptions that Snakepit knows by name, and our facts.
#
# Snakepit makes a struct of an error with a known type (`%Snakepit.Error.ValueError{}`); the facts for programs,
# `reason`, `field` and `retryable`, are in its context.

MAX_MESSAGE_BYTES = 2_000
"""Longest message, including the path of the field."""
MAX_FACT_BYTES = 500
"""Longest text of a context's entry."""

TYPES_BY_REASON: Mapping[str, type[Exception]] = {
    Reason.EXTRA_NOT_INSTALLED: ImportError,
    Reason.MODEL_NOT_FOUND: FileNotFoundError,
    Reason.NO_SUCH_FILE: FileNotFoundError,
    Reason.UNKNOWN_PARAMETER: TypeError,
    Reason.WRONG_TYPE: TypeError,
}
"""Reasons with a more specific exception than their code's."""

TYPES_BY_CODE: Mapping[Code, type[Exception]] = {
    Code.ABORTED: RuntimeError,
    Code.ALREADY_EXISTS: ValueError,
    Code.CANCELLED: RuntimeError,
    Code.DATA_LOSS: RuntimeError,
    Code.DEADLINE_EXCEEDED: RuntimeError,
    Code.FAILED_PRECONDITION: RuntimeError,
    Code.INTERNAL: RuntimeError,
    Code.INVALID_ARGUMENT: ValueError,
    Code.NOT_FOUND: KeyError,
    Code.OUT_OF_RANGE: IndexError,
    Code.PERMISSION_DENIED: PermissionError,
    Code.RESOURCE_EXHAUSTED: RuntimeError,
    Code.UNAUTHENTICATED: PermissionError,
    Code.UNAVAILABLE: RuntimeError,
    Code.UNIMPLEMENTED: NotImplementedError,
    Code.UNKNOWN: RuntimeError,
}
"""Each of our codes, and its exception."""


def bridge_error(error: BaseException) -> BridgeError:
    """The error to return: a BridgeError unchanged; for any other only that it happened, as the log has the rest."""
    if isinstance(error, BridgeError):
        return error
    if (lacking := shortage(error)) is not None:
        return lacking
    error_id = logged(structlog.get_logger("crucible_worker.snakepit"), "unexpected_error", error)
    return InternalError(f"internal error {error_id}", metadata={"error_id": error_id})


def failure_as_json(error: BaseException, call: ToolCall, tool: str) -> str:
    """Snakepit's error message: JSON in ASCII with type, message and context; never our traceback.

    Args:
        error: what a tool ended with.
        call: the call.
        tool: the tool's name in the request.
    """
    known = bridge_error(error)
    context: dict[str, Any] = {
        "tool_name": shorten(tool, MAX_FACT_BYTES),
        "session_id": shorten(call.session_id, MAX_FACT_BYTES),
        **_facts(known),
    }
    if call.correlation_id is not None:
        context["correlation_id"] = shorten(call.correlation_id, MAX_FACT_BYTES)
    payload = {"type": _type(known).__name__, "message": _message(known), "context": context}
    return json.dumps(payload, allow_nan=False)


def python_error(error: BaseException) -> Exception:
    """The exception for Snakepit's own server, which makes JSON of its class and text: reason, message."""
    known = bridge_error(error)
    kind = _type(known)
    return (_PlainKeyError if kind is KeyError else kind)(f"{known.reason}: {_message(known)}")


class _PlainKeyError(KeyError):
    """Has the class name KeyError; its text is the message itself, not the message in quotes."""

    def __str__(self) -> str:
        return self.args[0]


_PlainKeyError.__name__ = KeyError.__name__


def _type(error: BridgeError) -> type[Exception]:
    return TYPES_BY_REASON.get(error.reason) or TYPES_BY_CODE[error.code]


def _message(error: BridgeError) -> str:
    return shorten(f"{error.field} {error.message}" if error.field else error.message, MAX_MESSAGE_BYTES)


def _facts(error: BridgeError) -> dict[str, Any]:
    """Facts for programs; our own keys override an error's further facts."""
    facts: dict[str, Any] = {key: shorten(value, MAX_FACT_BYTES) for key, value in error.metadata.items()}
    facts |= {"reason": error.reason, "code": str(error.code), "retryable": error.retryable}
    if error.field:
        facts["field"] = shorten(error.field, MAX_FACT_BYTES)
    if error.retry_after is not None:
        facts["retry_after_ms"] = round(error.retry_after * 1000)
    return facts
