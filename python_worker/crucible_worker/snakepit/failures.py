"""Errors for a tool's caller: one of the Python exceptions that Snakepit knows by name, and our facts.

Snakepit makes a struct of an error with a known type (`%Snakepit.Error.ValueError{}`); the facts for programs,
`reason`, `field` and `retryable`, are in its context.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from crucible_bridge.errors import BridgeError, Code, InternalError
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_worker.util.error_reporter import logged, shortage

if TYPE_CHECKING:
    from crucible_worker.snakepit.tools import ToolCall

__all__ = ["MAX_FACT_BYTES", "MAX_MESSAGE_BYTES", "TYPES_BY_CODE", "TYPES_BY_REASON", "as_json", "python_error", "told"]

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


def told(error: BaseException) -> BridgeError:
    """The error to return: a BridgeError unchanged; for any other only that it happened, as the log has the rest."""
    if isinstance(error, BridgeError):
        return error
    if (lacking := shortage(error)) is not None:
        return lacking
    error_id = logged(structlog.get_logger("crucible_worker.snakepit"), "unexpected_error", error)
    return InternalError(f"internal error {error_id}", metadata={"error_id": error_id})


def as_json(error: BaseException, call: ToolCall, tool: str) -> str:
    """Snakepit's error message: JSON in ASCII with type, message and context; never our traceback.

    Args:
        error: what a tool ended with.
        call: the call.
        tool: the tool's name in the request.
    """
    known = told(error)
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
    known = told(error)
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
