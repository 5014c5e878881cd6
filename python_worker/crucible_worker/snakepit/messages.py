"""Snakepit's requests and responses of tools <-> a tool's parameters and results.

A large request is read in place, without a copy: protobuf would copy its binary parameters twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from crucible_bridge.codec.bulk import Encoder
from crucible_bridge.codec.elements import MAX_ELEMENTS, request_parsed
from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, content_range, plainly, split
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MAX_MAP_ENTRIES
from crucible_worker.rpc.offload import LARGE_BYTES
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.tools import ToolCall
from crucible_worker.snakepit.tools_arrays import Binary
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.util.parsing import parts_of, uncollected

__all__ = ["CORRELATION_KEY", "MAX_PARTS", "ToolRequest", "answer", "failure", "read_tool_request"]

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
