"""What a tool's caller learns of an error: one of the Python exceptions that Snakepit knows by name, and our facts.

Snakepit makes a struct of an error whose type it knows (`%Snakepit.Error.ValueError{}`); what programs compare,
`reason`, `field` and `retryable`, stands in its context.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from crucible_bridge.errors import BridgeError, Code, InternalError
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_worker.faults import logged

if TYPE_CHECKING:
    from crucible_worker.snakepit.tools import ToolCall

__all__ = ["MAX_FACT_BYTES", "MAX_MESSAGE_BYTES", "TYPES_BY_CODE", "TYPES_BY_REASON", "as_json", "python_error", "told"]

MAX_MESSAGE_BYTES = 2_000
"""Longest message; the path of the field counts."""
MAX_FACT_BYTES = 500
"""Longest text of a context's entry."""

TYPES_BY_REASON: Mapping[str, type[Exception]] = {
    Reason.EXTRA_NOT_INSTALLED: ImportError,
    Reason.MODEL_NOT_FOUND: FileNotFoundError,
    Reason.NO_SUCH_FILE: FileNotFoundError,
    Reason.UNKNOWN_PARAMETER: TypeError,
    Reason.WRONG_TYPE: TypeError,
}
"""Reasons that say more than their code."""

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
"""Every code of ours and the exception that stands for it."""


def told(error: BaseException) -> BridgeError:
    """The error as it is told: a BridgeError as it is, of anything else only that it happened; the log has the rest."""
    if isinstance(error, BridgeError):
        return error
    error_id = logged(structlog.get_logger("crucible_worker.snakepit"), "unexpected_error", error)
    return InternalError(f"internal error {error_id}", metadata={"error_id": error_id})


def as_json(error: BaseException, call: ToolCall, tool: str) -> str:
    """Snakepit's error message: JSON in ASCII with type, message and context; never a traceback of ours.

    Args:
        error: what a tool ended with.
        call: which call it was.
        tool: the tool's name, as it was asked for.
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
    """What to raise where a server of Snakepit's own makes JSON of an exception's class and text: reason, message."""
    known = told(error)
    kind = _type(known)
    return (_PlainKeyError if kind is KeyError else kind)(f"{known.reason}: {_message(known)}")


class _PlainKeyError(KeyError):
    """A KeyError to those who ask for its name; its text is what it was given, and not that in quotes."""

    def __str__(self) -> str:
        return self.args[0]


_PlainKeyError.__name__ = KeyError.__name__


def _type(error: BridgeError) -> type[Exception]:
    return TYPES_BY_REASON.get(error.reason) or TYPES_BY_CODE[error.code]


def _message(error: BridgeError) -> str:
    return shorten(f"{error.field} {error.message}" if error.field else error.message, MAX_MESSAGE_BYTES)


def _facts(error: BridgeError) -> dict[str, Any]:
    """What programs compare; our own keys win over an error's further facts."""
    facts: dict[str, Any] = {key: shorten(value, MAX_FACT_BYTES) for key, value in error.metadata.items()}
    facts |= {"reason": error.reason, "code": str(error.code), "retryable": error.retryable}
    if error.field:
        facts["field"] = shorten(error.field, MAX_FACT_BYTES)
    if error.retry_after is not None:
        facts["retry_after_ms"] = round(error.retry_after * 1000)
    return facts
