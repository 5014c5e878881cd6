"""Errors <-> gRPC statuses with google.rpc details.

A status carries ErrorInfo (reason, whether to retry, further facts), BadRequest (path of the field) and RetryInfo (when
to retry). Message and details stay below MAX_STATUS_BYTES together: a larger block of trailers breaks the whole
connection of some clients (elixir-grpc, from about 26 KB).
"""

from __future__ import annotations

import math
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from crucible_bridge.errors import (
    CANONICAL_ERRORS,
    BackendError,
    BridgeError,
    Code,
    InvalidField,
    ResourceExhausted,
)
from crucible_bridge.problems import BACKEND_REASON_PREFIX, shorten
from crucible_bridge.reasons import Reason

__all__ = [
    "DETAILS_KEY",
    "DOMAIN",
    "MAX_FACTS_BYTES",
    "MAX_FIELD_BYTES",
    "MAX_REASON_BYTES",
    "MAX_STATUS_BYTES",
    "MAX_STATUS_MESSAGE_BYTES",
    "STATUS_CODES",
    "from_rpc_error",
    "to_status",
]

DOMAIN = "crucible_bridge"
"""The domain of our reasons in ErrorInfo."""
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer that holds a serialised google.rpc.Status."""
MAX_STATUS_BYTES = 4_096
"""Message and details together, as the trailers carry them (details in base64)."""
MAX_STATUS_MESSAGE_BYTES = 1_000
"""Longest message of a status; shorter if the details need the room."""
MAX_FIELD_BYTES = 240
"""Longest path of a field."""
MAX_REASON_BYTES = 64
"""Longest reason, as google.rpc.ErrorInfo bounds it."""
MAX_FACTS_BYTES = 600
"""Keys and values of an error's metadata together; entries beyond are left out."""

STATUS_CODES: Mapping[Code, grpc.StatusCode] = {
    Code.CANCELLED: grpc.StatusCode.CANCELLED,
    Code.UNKNOWN: grpc.StatusCode.UNKNOWN,
    Code.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    Code.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Code.ABORTED: grpc.StatusCode.ABORTED,
    Code.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    Code.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    Code.INTERNAL: grpc.StatusCode.INTERNAL,
    Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Code.DATA_LOSS: grpc.StatusCode.DATA_LOSS,
    Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
}
"""Each of our codes, and its gRPC status."""

_CODES: Mapping[grpc.StatusCode, Code] = {status: code for code, status in STATUS_CODES.items()}
_CLASSES: Mapping[Code, type[BridgeError]] = {error.default_code: error for error in CANONICAL_ERRORS}
_RETRYABLE = "retryable"
# The codes of a broken connection and of a killed or stopping server: the call may have been handled or not.
_RETRYABLE_WITHOUT_DETAILS = (Code.UNAVAILABLE, Code.INTERNAL, Code.DEADLINE_EXCEEDED)
# A gRPC server that stops answers late calls, and those that it ends, with CANCELLED. A caller that cancels its own
# call gets no status.
_STOPPED = "the worker stopped before it answered"
# gRPC's own text in this process, if there is no socket or no process listens on it.
_NOT_THERE = re.compile(
    r"^(?P<whom>failed to connect to all addresses|connections to all backends failing); "
    r"last error: \w+: (?:ipv[46]:)?(?P<address>\S+): "
    r".*(?P<why>Connection refused|No such file or directory) \(\d+\)$"
)
_ALL_OF_A_POOL = "connections to all backends failing"
# Likewise, if plain text meets TLS, or the certificate has another name: what the caller may add.
_TLS_CURES = (
    (
        re.compile(r"^(?:failed to connect|connections) to all .*: Socket closed$"),
        "if the worker serves with TLS, give its certificate: tls, or --tls-ca FILE",
    ),
    (
        re.compile(r" is not in peer certificate$"),
        "give the certificate's own name: Tls(server_name=...), or --tls-name NAME",
    ),
)
# Base64 grows by groups, so the size is off by less than this.
_BASE64_STEP = 4
# protobuf's Duration ends at 10,000 years; a day is already longer than any caller waits.
_MAX_RETRY_AFTER_S = 86_400.0


def to_status(error: BridgeError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """The status, message and trailing metadata of an error, as `context.abort` of grpc.aio expects them.

    The message is ASCII (other characters are escaped, as not every client decodes them), shortened with an ellipsis.
    """
    field = shorten(error.field, MAX_FIELD_BYTES)
    facts = _facts_that_fit(error.metadata)
    message = shorten(_ascii(error.message), MAX_STATUS_MESSAGE_BYTES)
    text, details = _encode(error, message, field, facts)
    if (excess := _wire_bytes(text) + _base64_bytes(details) - MAX_STATUS_BYTES) > 0:
        # A byte of the message takes 1 in the text, and 4/3 at each place in the details: one, or two with a field.
        message = shorten(message, len(message) - math.ceil(excess * 3 / (11 if field else 7)) - _BASE64_STEP)
        text, details = _encode(error, message, field, facts)
    return STATUS_CODES[error.code], text, ((DETAILS_KEY, details),)


def from_rpc_error(error: grpc.RpcError) -> BridgeError:
    """The error of a failed call, in the class of its code and reason.

    A status without our details comes from the transport or from another server: only its code decides.
    """
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return BridgeError(str(error))
    code = _CODES.get(error.code(), Code.UNKNOWN)
    text = error.details() or ""
    # The stubs do not declare that an entry is a pair.
    trailers: Any = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY:
            try:
                return _from_details(code, text, status_pb2.Status.FromString(value))
            except DecodeError:
                # Another program wrote the details, so this is no failure: code and message are still valid.
                break
    return _without_details(code, text)


def _from_details(code: Code, text: str, status: status_pb2.Status) -> BridgeError:
    info, bad_request, retry = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
    )
    retry_after = None
    for detail in status.details:
        # Unpack returns whether the type is the right one.
        if not detail.Unpack(info) and not detail.Unpack(bad_request) and detail.Unpack(retry):
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    if info.domain != DOMAIN:
        return _without_details(code, text)
    field, message = "", text
    for violation in bad_request.field_violations[:1]:
        field, message = violation.field, violation.description
    facts = dict(sorted(info.metadata.items()))
    retryable = facts.pop(_RETRYABLE, "false") == "true"
    return _restore(code, message, info.reason, field, retryable, retry_after, facts)


def _restore(
    code: Code,
    message: str,
    reason: str,
    field: str,
    retryable: bool,
    retry_after: float | None,
    facts: Mapping[str, str],
) -> BridgeError:
    if code is Code.INVALID_ARGUMENT:
        error: BridgeError = InvalidField(field, message, reason=reason)
        error.retryable, error.retry_after, error.metadata = retryable, retry_after, dict(facts)
        return error
    kind = BackendError if reason.startswith(BACKEND_REASON_PREFIX) else _CLASSES.get(code, BridgeError)
    return kind(
        message, code=code, reason=reason, field=field, retryable=retryable, retry_after=retry_after, metadata=facts
    )


def _without_details(code: Code, text: str) -> BridgeError:
    if code is Code.CANCELLED:
        # gRPC's own text is the name of the code.
        code, text = Code.UNAVAILABLE, _STOPPED if text in ("", code.value) else text
    text = text or f"the call ended with {code}"
    if code is Code.RESOURCE_EXHAUSTED and "larger than max" in text:
        return ResourceExhausted(text, reason=Reason.MESSAGE_TOO_LARGE, retryable=False)
    if code is Code.UNAVAILABLE and (found := _NOT_THERE.search(text)):
        address = urllib.parse.unquote(found["address"])
        text = f"nothing listens on {address} ({found['why']}); crucible-worker serve starts a worker"
        if found["whom"] == _ALL_OF_A_POOL:
            text = f"no worker of the pool can be reached; {text}"
    elif code is Code.UNAVAILABLE:
        text = "; ".join((text, *(cure for pattern, cure in _TLS_CURES if pattern.search(text))))
    retryable = code in _RETRYABLE_WITHOUT_DETAILS
    if code is Code.INVALID_ARGUMENT:
        return InvalidField("", text)
    kind = _CLASSES.get(code, BridgeError)
    reason = Reason.TRANSPORT if code in (Code.UNAVAILABLE, Code.INTERNAL) else None
    return kind(text, code=code, reason=reason, retryable=retryable)


def _encode(error: BridgeError, message: str, field: str, facts: Mapping[str, str]) -> tuple[str, bytes]:
    text = f"{_ascii(field)} {message}" if field else message
    status = status_pb2.Status(code=STATUS_CODES[error.code].value[0], message=text)
    info = error_details_pb2.ErrorInfo(
        reason=shorten(error.reason, MAX_REASON_BYTES),
        domain=DOMAIN,
        metadata={**facts, _RETRYABLE: "true" if error.retryable else "false"},
    )
    status.details.add().Pack(info)
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after is not None and math.isfinite(error.retry_after):
        seconds = min(max(error.retry_after, 0.0), _MAX_RETRY_AFTER_S)
        delay = duration_pb2.Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1e9) % 1_000_000_000)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return text, status.SerializeToString()


def _facts_that_fit(metadata: Mapping[str, str]) -> dict[str, str]:
    facts, room = {}, MAX_FACTS_BYTES
    for key, value in metadata.items():
        room -= len(key.encode(errors="replace")) + len(value.encode(errors="replace"))
        if room < 0:
            break
        facts[shorten(key, MAX_FACTS_BYTES)] = shorten(value, MAX_FACTS_BYTES)
    return facts


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _wire_bytes(text: str) -> int:
    # gRPC percent-encodes everything that is not printable, and the percent sign.
    return sum(1 if " " <= character <= "~" and character != "%" else 3 for character in text)


def _base64_bytes(data: bytes) -> int:
    return -(-len(data) // 3) * 4
