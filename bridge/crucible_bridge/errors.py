"""Every error of the bridge, on either side of the wire.

    BridgeError
    ├── InvalidField          one field of the request is wrong
    ├── NotFound              something that the request names does not exist
    ├── AlreadyExists         the id belongs to something else
    ├── FailedPrecondition    the request is right, but something that it needs is missing
    ├── OutOfRange            a position is no longer there, or not yet
    ├── Unauthenticated       no token, or a wrong one
    ├── PermissionDenied      the caller is known, but this is not allowed
    ├── ResourceExhausted     a limit is reached; the call may succeed later
    ├── Unavailable           the worker cannot serve now: it drains or warms up, or its journal cannot be written
    ├── DeadlineExceeded      time ran out
    ├── Cancelled             the caller left, or the call was cancelled
    ├── Unimplemented         the worker does not have the call
    ├── BackendError          a model could not be queried
    └── InternalError         a bug on our side

Each carries a code (the canonical status), a stable reason, whether the same call may succeed later, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from crucible_bridge.reasons import Code, Reason

__all__ = [
    "AlreadyExists",
    "BackendError",
    "BridgeError",
    "Cancelled",
    "Code",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InternalError",
    "InvalidField",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "clipped",
]

_MAX_CLIPPED_CHARS = 200


def clipped(value: object) -> str:
    """A value as an error repeats it: its `repr`, of which 200 characters at most, and then an ellipsis."""
    # The repr of a long text is not made: a caller may have sent megabytes.
    shown = repr(value[:_MAX_CLIPPED_CHARS] if isinstance(value, str | bytes) else value)
    return shown if len(shown) <= _MAX_CLIPPED_CHARS else f"{shown[:_MAX_CLIPPED_CHARS]}..."


class BridgeError(Exception):
    """The base of every error of the bridge; catch this to catch all.

    Attributes:
        code: canonical status.
        reason: stable, upper case ("UNKNOWN_EVALUATOR"); for programs to compare.
        message: one sentence for people, without the field.
        field: path of the offending field (`data[3].loss_fn_inputs["mask"]`), empty if there is none.
        retryable: whether the same call may succeed later.
        retry_after: seconds after which it may; None if unknown.
        metadata: further facts, such as `evaluation_id`.
    """

    default_code: ClassVar[Code] = Code.UNKNOWN
    default_reason: ClassVar[str] = Reason.UNKNOWN
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        code: Code | None = None,
        field: str = "",
        retryable: bool | None = None,
        retry_after: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{field} {message}" if field else message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.reason = self.default_reason if reason is None else reason
        self.field = field
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after = retry_after
        self.metadata: dict[str, str] = dict(metadata or {})


class InvalidField(BridgeError):
    """A field of the request is wrong: its path, then what is wrong and the limit."""

    default_code = Code.INVALID_ARGUMENT
    default_reason = Reason.INVALID_FIELD

    def __init__(
        self, field: str, message: str, *, reason: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, field=field, reason=reason, metadata=metadata)


class NotFound(BridgeError):
    """What the request names does not exist, or no longer."""

    default_code = Code.NOT_FOUND
    default_reason = Reason.NOT_FOUND


class AlreadyExists(BridgeError):
    """The id belongs to something with another specification."""

    default_code = Code.ALREADY_EXISTS
    default_reason = Reason.ALREADY_EXISTS


class FailedPrecondition(BridgeError):
    """The request is well formed, but what it relies on is missing or has changed."""

    default_code = Code.FAILED_PRECONDITION
    default_reason = Reason.FAILED_PRECONDITION


class OutOfRange(BridgeError):
    """The requested position lies outside of what is retained."""

    default_code = Code.OUT_OF_RANGE
    default_reason = Reason.OUT_OF_RANGE


class Unauthenticated(BridgeError):
    """The call carries no valid token."""

    default_code = Code.UNAUTHENTICATED
    default_reason = Reason.UNAUTHENTICATED


class PermissionDenied(BridgeError):
    """The caller may not do this, for instance read outside of the roots."""

    default_code = Code.PERMISSION_DENIED
    default_reason = Reason.PERMISSION_DENIED


class ResourceExhausted(BridgeError):
    """A named limit is reached."""

    default_code = Code.RESOURCE_EXHAUSTED
    default_reason = Reason.RESOURCE_EXHAUSTED
    default_retryable = True


class Unavailable(BridgeError):
    """The worker cannot be reached, or cannot serve the call now."""

    default_code = Code.UNAVAILABLE
    default_reason = Reason.UNAVAILABLE
    default_retryable = True


class DeadlineExceeded(BridgeError):
    """Time ran out; what was started may continue (see the metadata's `evaluation_id`)."""

    default_code = Code.DEADLINE_EXCEEDED
    default_reason = Reason.DEADLINE_EXCEEDED
    default_retryable = True


class Cancelled(BridgeError):
    """The call was ended by its caller."""

    default_code = Code.CANCELLED
    default_reason = Reason.CANCELLED


class Unimplemented(BridgeError):
    """The worker, or the requested model, does not support this."""

    default_code = Code.UNIMPLEMENTED
    default_reason = Reason.UNIMPLEMENTED


class BackendError(BridgeError):
    """A model could not be queried, or its reply is invalid; `retryable` says whether a retry may help."""

    default_code = Code.UNAVAILABLE
    default_reason = Reason.BACKEND_FAILED
    default_retryable = True


class InternalError(BridgeError):
    """A bug on our side; the worker's log has the traceback, which is never sent."""

    default_code = Code.INTERNAL
    default_reason = Reason.INTERNAL


CANONICAL_ERRORS: tuple[type[BridgeError], ...] = (
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
"""The class of each code, and of each default reason: a received error becomes one of these.

InvalidField is not in it, because it is made from its field; nor BackendError, known by its reason's prefix.
"""
