"""What a server's refusal, or its silence, means to whoever asked: one of our errors, with when to come again.

Servers agree on status codes more than on words, so words decide only where a code has two meanings. What a server says
is repeated in part, without the key; what it says to a wrong key is not, as some say it back.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import enum
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError, Code, InvalidField, NotFound
from crucible_bridge.reasons import Reason

__all__ = [
    "MAX_RETRY_AFTER_SECONDS",
    "MAX_TOLD_CHARS",
    "MIN_REDACTED_CHARS",
    "FailedRequest",
    "Silence",
    "final",
    "garbage",
    "of_connection",
    "of_status",
    "retry_after",
]

MAX_TOLD_CHARS = 300
"""Of a server's own words, so many are repeated."""

MAX_RETRY_AFTER_SECONDS = 3600.0
"""A server that wants a longer wait is asked again after this one."""

MIN_REDACTED_CHARS = 8
"""A key that is shorter is no secret, and may be part of any word."""

_BUSY = frozenset({408, 409, 423, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses of a server that may answer the same request later; 429 has a row of its own."""

_MAX_HEADER_CHARS = 128
"""Of Retry-After, which is a number or a date."""

_CURES = {
    "/chat/completions": ' (a model without a chat template needs completions: --renderer raw, or renderer = "raw" in '
    "the server's settings)",
    "/completions": " (if the server only chats, leave the renderer at auto, or set chat_template; tokens and "
    "likelihoods need completions)",
}
"""By what was called."""
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|max_model_len|prompt is too long|too many tokens|input is too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|exceeded your current quota", re.IGNORECASE)


class Silence(enum.Enum):
    """How a request ended without an answer; the value is the reason of its error."""

    TIMEOUT = Reason.BACKEND_TIMEOUT
    """The server sent nothing, or took nothing, for too long."""
    UNREACHABLE = Reason.BACKEND_UNREACHABLE
    """No connection came about."""
    LOST = Reason.BACKEND_CONNECTION_LOST
    """The connection ended before the answer did."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request that went wrong."""

    server: str
    """Name of the server."""
    model: str
    """Name of the model there; empty where none was named."""
    path: str
    """What was called: "/completions"."""
    key: str | None = dataclasses.field(default=None, repr=False)
    """The key, to be left out of what is told."""


def of_status(asked: FailedRequest, status: int, headers: Mapping[str, str], body: bytes) -> BridgeError:
    """The error for an answer that is none: any status but 2xx."""
    told, code = _words(body, asked.key)
    where, wait = f"server {asked.server!r}", retry_after(headers)
    if status == 401:
        return final(f"{where} wants another key than the worker has", Reason.BACKEND_UNAUTHENTICATED)
    if status == 403:
        return final(f"{where} does not let the worker's key do this", Reason.BACKEND_FORBIDDEN)
    if status == 402 or (status == 429 and _QUOTA.search(f"{code} {told}")):
        return final(f"{where} wants to be paid first: {told}", Reason.BACKEND_QUOTA)
    if status == 429:
        return BackendError(
            f"{where} limits its rate: {told}",
            reason=Reason.BACKEND_RATE_LIMITED,
            code=Code.RESOURCE_EXHAUSTED,
            retry_after=wait,
        )
    if status == 404:
        message = (
            f"is {asked.model!r}, and {where} answered 404 at {asked.path}: it has no such model, or its URL lacks "
            f"a part such as /v1, or it does not have this path{_cure(asked)}; it says: {told}"
        )
        return NotFound(message, reason=Reason.UNKNOWN_MODEL, field="model")
    if status in (400, 413, 422) and _TOO_LONG.search(f"{code} {told}"):
        return InvalidField("prompt", f"is longer than {where} takes: {told}", reason=Reason.PROMPT_TOO_LONG)
    if status in _BUSY:
        return BackendError(f"{where} answered {status}: {told}", reason=Reason.BACKEND_FAILED, retry_after=wait)
    if 300 <= status < 400:
        return final(f"{where} answered {status}, and redirects are not followed", Reason.BACKEND_REDIRECT)
    return final(f"{where} answered {status}{_cure(asked)}: {told}", Reason.BACKEND_REFUSED)


def _cure(asked: FailedRequest) -> str:
    """What helps where a server has one of the two ways to ask for text, and not the other."""
    return _CURES.get(asked.path, "")


def of_connection(asked: FailedRequest, silence: Silence, kind: str, *, stall_seconds: float) -> BackendError:
    """The error for a request without any answer; `kind` names what happened, as the library calls it."""
    told = {
        Silence.TIMEOUT: f"sent nothing for {stall_seconds:g} s",
        Silence.UNREACHABLE: "cannot be reached",
        Silence.LOST: "went away before its answer was there",
    }
    return BackendError(f"server {asked.server!r} {told[silence]} ({kind})", reason=silence.value)


def garbage(server: str, what: str) -> BackendError:
    """The error for an answer that makes no sense; retryable, as the next one may come from another machine."""
    return BackendError(f"server {server!r} answered nonsense: {what}", reason=Reason.BACKEND_ANSWER)


def final(message: str, reason: str) -> BackendError:
    """An error that asking again does not help against."""
    return BackendError(message, reason=reason, code=Code.FAILED_PRECONDITION, retryable=False)


def retry_after(headers: Mapping[str, str], now: datetime.datetime | None = None) -> float | None:
    """Seconds to wait as the header Retry-After says, be it seconds or a date; None where it says nothing.

    Args:
        headers: of the answer; names in any case.
        now: the time, where it is not that of the clock.
    """
    text = {name.lower(): value for name, value in headers.items()}.get("retry-after", "").strip()
    if len(text) > _MAX_HEADER_CHARS:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        if date.tzinfo is None:  # "-0000" or no zone at all; HTTP has GMT alone
            date = date.replace(tzinfo=datetime.UTC)
        seconds = (date - (now or datetime.datetime.now(datetime.UTC))).total_seconds()
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None


def _words(body: bytes, key: str | None) -> tuple[str, str]:
    """What a server says of its refusal, fit to be repeated, and its own code for it."""
    try:
        text, code = _of_document(json.loads(body))
    except (ValueError, RecursionError):  # no JSON, or too deep to be read or written
        text, code = body[: 16 * MAX_TOLD_CHARS].decode("utf-8", "replace"), ""
    if key is not None and len(key) >= MIN_REDACTED_CHARS:
        text, code = text.replace(key, "[key]"), code.replace(key, "[key]")
    # JSON may hold halves of surrogate pairs, which no message of ours can carry.
    words = " ".join(text.encode("utf-8", "replace").decode().split())
    if not words:
        return "no reason given", code
    return words if len(words) <= MAX_TOLD_CHARS else words[: MAX_TOLD_CHARS - 1] + "…", code


def _of_document(document: Any) -> tuple[str, str]:
    inner = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(inner, dict):
        return str(inner), ""
    return str(inner.get("message") or inner.get("detail") or inner), f"{inner.get('code', '')} {inner.get('type', '')}"
