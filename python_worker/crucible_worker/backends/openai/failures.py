"""Maps a server's refusal, or its silence, to one of our errors, with the time of a retry.

Servers agree on status codes more than on texts, so the text decides only if a code has two meanings. A part of a
server's text is repeated in the error, without the key. Its text about a wrong key is not: some servers echo the key.
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
    "MAX_REPEATED_CHARS",
    "MAX_RETRY_AFTER_SECONDS",
    "MIN_REDACTED_CHARS",
    "FailedRequest",
    "Silence",
    "final",
    "garbage",
    "of_connection",
    "of_status",
    "retry_after",
]

MAX_REPEATED_CHARS = 300
"""Most characters of a server's text that are repeated."""

MAX_RETRY_AFTER_SECONDS = 3600.0
"""Longest wait before a retry, even if a server names a longer one."""

MIN_REDACTED_CHARS = 8
"""A shorter key is no secret, and may be part of any word: it is not removed from texts."""

_BUSY = frozenset({408, 409, 423, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses after which the same request may succeed later; 429 is handled separately."""

_MAX_HEADER_CHARS = 128
"""Longest Retry-After that is read; it has a number or a date."""

_CURES = {
    "/chat/completions": ' (a model without a chat template needs completions: --renderer raw, or renderer = "raw" in '
    "the server's settings)",
    "/completions": " (if the server only chats, leave the renderer at auto, or set chat_template; tokens and "
    "likelihoods need completions)",
}
"""The cure, by the path of the request."""
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|max_model_len|prompt is too long|too many tokens|input is too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|exceeded your current quota", re.IGNORECASE)


class Silence(enum.Enum):
    """Why a request has no answer; the value is the reason of its error."""

    TIMEOUT = Reason.BACKEND_TIMEOUT
    """The server sent nothing, or read nothing, for too long."""
    UNREACHABLE = Reason.BACKEND_UNREACHABLE
    """No connection could be made."""
    LOST = Reason.BACKEND_CONNECTION_LOST
    """The connection ended before the end of the answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request that failed."""

    server: str
    """Name of the server."""
    model: str
    """Name of the model there; empty if the request named none."""
    path: str
    """The path of the request: "/completions"."""
    key: str | None = dataclasses.field(default=None, repr=False)
    """The key, which must not appear in errors."""


def of_status(asked: FailedRequest, status: int, headers: Mapping[str, str], body: bytes) -> BridgeError:
    """The error for an answer with a status other than 2xx."""
    told, code = _words(body, asked.key)
    where, wait = f"server {asked.server!r}", retry_after(headers)
    if status == 401:
        return final(f"{where} does not accept the worker's key", Reason.BACKEND_UNAUTHENTICATED)
    if status == 403:
        return final(f"{where} does not permit this with the worker's key", Reason.BACKEND_FORBIDDEN)
    if status == 402 or (status == 429 and _QUOTA.search(f"{code} {told}")):
        return final(f"{where} has no quota left for the worker's key: {told}", Reason.BACKEND_QUOTA)
    if status == 429:
        return BackendError(
            f"{where} limits the rate of requests: {told}",
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
    """The cure if a server has only one of chat and completions."""
    return _CURES.get(asked.path, "")


def of_connection(asked: FailedRequest, silence: Silence, kind: str, *, stall_seconds: float) -> BackendError:
    """The error for a request without any answer; `kind` names what happened, as the library calls it."""
    told = {
        Silence.TIMEOUT: f"sent nothing for {stall_seconds:g} s",
        Silence.UNREACHABLE: "cannot be reached",
        Silence.LOST: "closed the connection before its answer was complete",
    }
    return BackendError(f"server {asked.server!r} {told[silence]} ({kind})", reason=silence.value)


def garbage(server: str, what: str) -> BackendError:
    """The error for an invalid answer; retryable, as the next one may come from another machine."""
    return BackendError(f"server {server!r} sent an invalid answer: {what}", reason=Reason.BACKEND_ANSWER)


def final(message: str, reason: str) -> BackendError:
    """An error that is not retryable."""
    return BackendError(message, reason=reason, code=Code.FAILED_PRECONDITION, retryable=False)


def retry_after(headers: Mapping[str, str], now: datetime.datetime | None = None) -> float | None:
    """Seconds to wait by the header Retry-After, which has seconds or a date; None if there is none.

    Args:
        headers: of the answer; names in any case.
        now: the time; that of the clock if None.
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
        if date.tzinfo is None:  # "-0000" or no zone; HTTP has only GMT
            date = date.replace(tzinfo=datetime.UTC)
        seconds = (date - (now or datetime.datetime.now(datetime.UTC))).total_seconds()
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None


def _words(body: bytes, key: str | None) -> tuple[str, str]:
    """A server's text about its refusal, safe to repeat, and its error code."""
    try:
        text, code = _of_document(json.loads(body))
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        text, code = body[: 16 * MAX_REPEATED_CHARS].decode("utf-8", "replace"), ""
    if key is not None and len(key) >= MIN_REDACTED_CHARS:
        text, code = text.replace(key, "[key]"), code.replace(key, "[key]")
    # JSON may contain halves of surrogate pairs, which are not valid in our messages.
    words = " ".join(text.encode("utf-8", "replace").decode().split())
    if not words:
        return "no reason given", code
    return words if len(words) <= MAX_REPEATED_CHARS else words[: MAX_REPEATED_CHARS - 1] + "…", code


def _of_document(document: Any) -> tuple[str, str]:
    inner = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(inner, dict):
        return str(inner), ""
    return str(inner.get("message") or inner.get("detail") or inner), f"{inner.get('code', '')} {inner.get('type', '')}"
