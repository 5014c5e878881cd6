"""Every error of the bridge, on either side of the wire.

    BridgeError
    ├── InvalidField          the request is wrong at one field
    ├── NotFound              what was named does not exist
    ├── AlreadyExists         the identity is taken by something else
    ├── FailedPrecondition    the request is right, the world is not as it needs
    ├── OutOfRange            a position is no longer, or not yet, there
    ├── Unauthenticated       no token, or a wrong one
    ├── PermissionDenied      known, but not allowed
    ├── ResourceExhausted     a limit is reached; later it may be free
    ├── Unavailable           the worker cannot serve just now: draining, warming, its journal unwritable
    ├── DeadlineExceeded      time ran out
    ├── Cancelled             the caller went away, or somebody ended it
    ├── Unimplemented         the worker does not have the call
    ├── BackendError          a model could not be asked
    └── InternalError         a bug of ours

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
]


class BridgeError(Exception):
    """Anything that the bridge refuses or fails at; catch this to catch all.

    Attributes:
        code: canonical status.
        reason: stable, upper case ("UNKNOWN_EVALUATOR"); what programs compare.
        message: one sentence for people, without the field.
        field: path of the offending field (`data[3].loss_fn_inputs["mask"]`), empty where there is none.
        retryable: whether the same call may succeed later.
        retry_after: seconds after which it may; None where nobody knows.
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
    """The identity belongs to something with another specification."""

    default_code = Code.ALREADY_EXISTS
    default_reason = Reason.ALREADY_EXISTS


class FailedPrecondition(BridgeError):
    """The request is well formed, but what it relies on is missing or has changed."""

    default_code = Code.FAILED_PRECONDITION
    default_reason = Reason.FAILED_PRECONDITION


class OutOfRange(BridgeError):
    """The position asked for lies outside of what is retained."""

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
    """The worker is there but cannot serve this now."""

    default_code = Code.UNAVAILABLE
    default_reason = Reason.UNAVAILABLE
    default_retryable = True


class DeadlineExceeded(BridgeError):
    """Time ran out; what was started may go on (see the metadata's `evaluation_id`)."""

    default_code = Code.DEADLINE_EXCEEDED
    default_reason = Reason.DEADLINE_EXCEEDED
    default_retryable = True


class Cancelled(BridgeError):
    """The call was ended by its caller."""

    default_code = Code.CANCELLED
    default_reason = Reason.CANCELLED


class Unimplemented(BridgeError):
    """The worker, or the model asked for, does not have this."""

    default_code = Code.UNIMPLEMENTED
    default_reason = Reason.UNIMPLEMENTED


class BackendError(BridgeError):
    """A model could not be asked, or answered nonsense; `retryable` says whether asking again may help."""

    default_code = Code.UNAVAILABLE
    default_reason = Reason.BACKEND_FAILED
    default_retryable = True


class InternalError(BridgeError):
    """A bug on our side; the worker's log has the traceback, the wire never does."""

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
"""The class of each code, and of each default reason: an error that arrives becomes one of these.

Not among them are InvalidField, which is built by its field, and BackendError, which is known by its reason's prefix.
"""
