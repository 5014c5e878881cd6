"""Problem <-> BridgeError: the problem of one item has the facts of a status, and the place in the request."""

from __future__ import annotations

from crucible_bridge.errors import CANONICAL_ERRORS, BackendError, BridgeError, InvalidField
from crucible_bridge.types import Problem

__all__ = ["BACKEND_REASON_PREFIX", "MAX_PROBLEM_BYTES", "at_field", "error_of", "problem_of", "shorten"]

MAX_PROBLEM_BYTES = 1_000
"""Longest message of a problem, and longest field, in bytes of UTF-8."""

BACKEND_REASON_PREFIX = "BACKEND_"
"""Reasons with this prefix belong to BackendError, whatever their code."""

_ELLIPSIS = "..."
_BY_REASON: dict[str, type[BridgeError]] = {error.default_reason: error for error in CANONICAL_ERRORS}


def problem_of(error: BridgeError) -> Problem:
    """The problem that describes an error; its message and field are shortened if they are long."""
    return Problem(
        reason=error.reason,
        message=shorten(error.message, MAX_PROBLEM_BYTES),
        field=shorten(error.field, MAX_PROBLEM_BYTES),
        retryable=error.retryable,
    )


def error_of(problem: Problem) -> BridgeError:
    """The error that a problem describes; a reason that is no class's default gives a plain BridgeError."""
    if problem.field or problem.reason == InvalidField.default_reason:
        return InvalidField(problem.field, problem.message, reason=problem.reason)
    if problem.reason.startswith(BACKEND_REASON_PREFIX):
        kind: type[BridgeError] = BackendError
    else:
        kind = _BY_REASON.get(problem.reason, BridgeError)
    return kind(problem.message, reason=problem.reason, retryable=problem.retryable)


def shorten(text: str, limit: int) -> str:
    """Truncate text to `limit` bytes of UTF-8, between characters, with an ellipsis. Lone surrogates become U+FFFD."""
    encoded = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: max(limit - len(_ELLIPSIS), 0)].decode(errors="ignore") + _ELLIPSIS


def at_field(error: BridgeError, field: str, *, own: str = "") -> BridgeError:
    """The same error, at a place of the request.

    Args:
        error: its field is a path within the part.
        field: path of the part in the request.
        own: the name of the part in the error, if it has one: "prompt" and "prompt[3]" become `field` and `field[3]`.
    """
    inner = error.field
    if own and inner.startswith(own) and inner[len(own) :][:1] in ("", "[", "."):
        path = field + inner[len(own) :]
    else:
        path = f"{field}.{inner}" if inner else field
    if isinstance(error, InvalidField):
        return InvalidField(path, error.message, reason=error.reason)
    return type(error)(
        error.message,
        reason=error.reason,
        code=error.code,
        field=path,
        retryable=error.retryable,
        retry_after=error.retry_after,
        metadata=error.metadata,
    )
