"""Executes tools for Snakepit; errors are returned in its form, in the response or as a status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import grpc.aio
import structlog

from crucible_bridge.errors import BridgeError, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.status import STATUS_CODES
from crucible_worker.rpc import Calls
from crucible_worker.rpc.methods import Context
from crucible_worker.snakepit import failures
from crucible_worker.snakepit.messages import ToolRequest, answer, failure, read_tool_request
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.tools import ToolCall, Tools
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.parsing import aside_if_large

__all__ = ["FRAME_BYTES", "Execution"]

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
            known = failures.told(error)
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
            known = failures.told(error)
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
    return failures.as_json(error, ToolCall(), "") if asked is None else failures.as_json(error, asked.call, asked.tool)


def _ended(event: str, asked: ToolRequest | None, started: float, error: BridgeError | None) -> int:
    """Log how a call ended; returns the milliseconds that it took."""
    milliseconds = (time.perf_counter() - started) * 1000
    tool = "" if asked is None else asked.tool
    correlation_id = None if asked is None else asked.call.correlation_id
    reason = "OK" if error is None else error.reason
    _log.info(event, tool=tool, correlation_id=correlation_id, reason=reason, milliseconds=round(milliseconds, 3))
    return round(milliseconds)
