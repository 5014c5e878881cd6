"""Maps a server's refusal, or its silence, to one of our errors, with the time of a retry.

Servers agree on status codes more than on texts, so the text decides only if a code has two meanings. A part of a
server's text is repeated in the error, without keys and tokens. Its text about a wrong key is not: some servers echo
the key.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import enum
import html
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
    "RefusedParameter",
    "Silence",
    "final",
    "garbage",
    "of_connection",
    "of_error_document",
    "of_status",
    "repeated",
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
"""The cure of a request whose path is the wrong one, by that path."""
_WRONG_PATH = {
    "/chat/completions": re.compile(
        r"chat.?template|not a chat model|(not|n't) support (the )?(/?v1/)?chat|"
        r"chat.?(completions?)?( api| endpoint)? (is|are) not (supported|available|enabled)|"
        r"use (the )?/?v1/completions",
        re.IGNORECASE,
    ),
    "/completions": re.compile(
        r"is a chat model|v1/chat/completions|use (the )?.?chat.?completions|"
        r"(not|n't) support (the )?(text )?completions?|only supports? chat|"
        r"\bcompletions?( api| endpoint)? (is|are) not (supported|available|enabled)",
        re.IGNORECASE,
    ),
}
"""Recognizes a refusal of the path, by the path: the model has no chat template, or only chats."""
_NO_MODEL = re.compile(
    r"model.?not.?found|model\b.{0,200}\b(not exist|not found|not available)", re.IGNORECASE | re.DOTALL
)
"""Recognizes a refusal of the model's name, which no other path mends."""
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|max_model_len|prompt is too long|too many tokens|input is too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|exceeded your current quota", re.IGNORECASE)

_ERROR_CODES = {
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "deployment_not_found": 404,
    "engine_overloaded": 503,
    "insufficient_quota": 402,
    "internal_error": 500,
    "internal_server_error": 500,
    "internalservererror": 500,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "overloaded": 503,
    "overloaded_error": 503,
    "badrequesterror": 400,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout": 504,
    "timeout_error": 504,
    "too_many_requests": 429,
    "unsupported_parameter": 400,
    "unsupported_value": 400,
}
"""The status that an error within an answer of status 200 stands for, by its code or type in lower case."""

_READ_BYTES = 64 * 1024
"""Bytes of an answer whose text is read for an error."""

_SECRETS = re.compile(
    r"\b(?:(?:sk|rk|pk|gsk|hf|xai|nvapi|tgp_v\d|tml|ghp|pplx|csk)[-_]|AKIA|AIza)[\w.-]{12,}|\beyJ[\w.~+/=-]{8,}"
)
"""Recognizes keys and tokens by their beginning."""
_NAMED_SECRETS = re.compile(
    r"(\b(?:bearer|basic)\s+|\b(?:api[_-]?key|access[_-]?token|authorization|password|secret)[\"']?\s*[:=]\s*[\"']?)"
    r"(?!bearer\b|basic\b)[^\s\"',;&<>]{6,}",
    re.IGNORECASE,
)
"""Recognizes them by what stands before."""

_PAGE = re.compile(r"\s*<(!--|!doctype\s+html|html|head|body|title|h1)", re.IGNORECASE)
_NO_TEXT = re.compile(r"<(script|style)\b[^<>]*>.*?(</\1\s*>|\Z)|<[^<>]*>", re.IGNORECASE | re.DOTALL)
"""What of a page of HTML is not its text."""

_REFUSES = re.compile(
    r"unsupported|not supported|(does|do) not support|doesn't support|not permitted|not allowed|unrecognized|"
    r"unknown (parameter|argument|field)|deprecated|only the default",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(
    r"must be|must not|at most|at least|(less|greater|more) than|above maximum|below minimum|between|"
    r"too (large|small|high|low)|cannot both|both be specified|together",
    re.IGNORECASE,
)
"""A refusal of a value that another value of the parameter mends."""
_LATER_NAME = "max_completion_tokens"
"""What a refusal of `max_tokens` names in its place."""
_PARAMETER_CURES = {
    "top_p": " (leave top_p out of the sampling parameters)",
    "top_k": " (leave top_k out of the sampling parameters)",
    "logprobs": " (set logprobs = false in the server's settings, and request no likeliest tokens)",
    "top_logprobs": " (request no likeliest tokens of this server)",
}
_REFUSING_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"})


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
    unauthenticated: str = "does not accept the worker's key"
    """What status 401 means: whether a key was sent, and how to set one."""


class RefusedParameter(BackendError):
    """A server refuses a parameter of a request, whatever its value or at any but the default."""

    parameter: str = ""
    """Its name in the request: "temperature"."""
    instead: str = ""
    """The parameter that the server names in its place; empty if it names none that is known."""


def of_status(asked: FailedRequest, status: int, headers: Mapping[str, str], body: bytes) -> BridgeError:
    """The error for an answer with a status other than 2xx."""
    return _of_refusal(asked, status, retry_after(headers), _parsed(body), repeated(body, asked.key))


def of_error_document(asked: FailedRequest, document: Mapping[str, Any]) -> BridgeError | None:
    """The error for an answer of status 200 that is an error in JSON; None if it is another answer.

    Its code says what it stands for; without a known one, it is an answer that cannot be used.
    """
    error = document.get("error")
    if document.get("choices") or not (error or document.get("object") == "error"):
        return None
    whole = {"error": error} if error else document
    words, code = _of_document(whole)
    words = _short(words, asked.key)
    status = _status_of(whole)
    if status is None:
        named = f" ({_short(code, asked.key)})" if code.strip() else ""
        return garbage(asked.server, f"an error{named} with status 200: {words}")
    return _of_refusal(asked, status, None, whole, words, within=True)


def _of_refusal(
    asked: FailedRequest, status: int, wait: float | None, document: Any, told: str, *, within: bool = False
) -> BridgeError:
    """The error for a status.

    Args:
        asked: the request.
        status: of the answer, or what an error within an answer stands for.
        wait: seconds until the next try, as the server says; None if it does not.
        document: the answer as JSON; None if it is none.
        told: the answer's text, safe to repeat.
        within: whether the answer itself had status 200.
    """
    where = f"server {asked.server!r}"
    answered = f"{where} answered {status}{' within an answer of status 200' if within else ''}"
    code = "" if document is None else _of_document(document)[1]
    if status == 401:
        return final(f"{where} {asked.unauthenticated}", Reason.BACKEND_UNAUTHENTICATED)
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
        return NotFound(_not_found(asked, answered, code, told), reason=Reason.UNKNOWN_MODEL, field="model")
    if status in (400, 413, 422) and _TOO_LONG.search(f"{code} {told}"):
        return InvalidField("prompt", f"is longer than {where} takes: {told}", reason=Reason.PROMPT_TOO_LONG)
    if status in _BUSY:
        return BackendError(f"{answered}: {told}", reason=Reason.BACKEND_FAILED, retry_after=wait)
    if 300 <= status < 400:
        return final(f"{answered}, and redirects are not followed", Reason.BACKEND_REDIRECT)
    # A path that is not there is the wrong one; any other refusal says so.
    cure = _cure(asked, f"{code} {told}", always=status == 405)
    if not cure and status in (400, 422) and (refused := _refused_parameter(document, code, told)):
        cure = _PARAMETER_CURES.get(refused[0], "")
        error = RefusedParameter(
            f"{answered}{cure}: {told}", reason=Reason.BACKEND_REFUSED, code=Code.FAILED_PRECONDITION, retryable=False
        )
        error.parameter, error.instead = refused
        return error
    return final(f"{answered}{cure}: {told}", Reason.BACKEND_REFUSED)


def _not_found(asked: FailedRequest, answered: str, code: str, told: str) -> str:
    """The message for a 404: of the model if the server says so, else of the path."""
    said = f"{code} {told}"
    cure = _cure(asked, said)
    if not cure and _NO_MODEL.search(said):
        return f"is {asked.model!r}, and {answered}: it has no such model; it says: {told}"
    cure = cure or _cure(asked, said, always=True)
    return (
        f"is {asked.model!r}, and {answered} at {asked.path}: it has no such model, or its URL lacks a part such as "
        f"/v1, or it does not have this path{cure}; it says: {told}"
    )


def _cure(asked: FailedRequest, said: str, *, always: bool = False) -> str:
    """The cure if a server has only one of chat and completions, and says so."""
    wrong = _WRONG_PATH.get(asked.path)
    return _CURES[asked.path] if wrong is not None and (always or wrong.search(said)) else ""


def _status_of(document: Mapping[str, Any]) -> int | None:
    """The status that an error in JSON stands for; None if its code is missing or unknown."""
    error = document.get("error", document)
    if not isinstance(error, dict):
        return None
    for value in (error.get("code"), error.get("status"), error.get("type")):
        text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        if len(text) == 3 and text.isascii() and text.isdigit() and 400 <= int(text) < 600:
            return int(text)
        if (known := _ERROR_CODES.get(text.lower())) is not None:
            return known
    return None


def _refused_parameter(document: Any, code: str, told: str) -> tuple[str, str] | None:
    """The parameter that a refusal names, and the one in its place, or "" if it names none; None for other refusals."""
    error = document.get("error", document) if isinstance(document, dict) else document
    names: list[Any] = [error.get("param")] if isinstance(error, dict) else []
    detail = document.get("detail") if isinstance(document, dict) else None
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):  # as FastAPI refuses a field
        place = detail[0].get("loc")
        names.append(place[-1] if isinstance(place, list) and place else None)
        code = f"{code} {detail[0].get('type', '')}"
    name = next((name for name in names if isinstance(name, str) and name), None)
    if name is None and (quoted := re.search(r"[`'\"]([a-z][a-z_]{0,39})[`'\"]", told)):
        name = quoted[1]
    refuses = bool(_REFUSING_CODES & set(code.split())) or (
        _REFUSES.search(told) is not None and not _OUT_OF_RANGE.search(told)
    )
    if name is None or not refuses:
        return None
    return name, _LATER_NAME if name != _LATER_NAME and _LATER_NAME in told else ""


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


def repeated(body: bytes, key: str | None) -> str:
    """The beginning of what a server said, safe to repeat in a message: one line, without keys and tokens.

    Args:
        body: an error in JSON, a page of HTML, or any other text.
        key: the worker's, for the server.
    """
    document = _parsed(body)
    if document is not None:
        return _short(_of_document(document)[0], key)
    text = body[:_READ_BYTES].decode("utf-8", "replace")
    # If the text was truncated within the key, the rest of the key must not be repeated either.
    if len(body) >= _READ_BYTES and key:
        text = text[: -len(key)]
    if _PAGE.match(text):
        words = _short(html.unescape(_NO_TEXT.sub(" ", text)), key)
        return f"a page of HTML: {words}"
    return _short(text, key)


def _without_secrets(text: str, key: str | None) -> str:
    """A foreign text without the worker's key, and without what looks like a key or a token."""
    if key is not None and len(key) >= MIN_REDACTED_CHARS:
        text = text.replace(key, "[key]")
    return _NAMED_SECRETS.sub(r"\1[key]", _SECRETS.sub("[key]", text))


def _short(text: str, key: str | None) -> str:
    """A foreign text on one line of at most `MAX_REPEATED_CHARS`, without secrets and control characters."""
    beginning = _without_secrets(text[:_READ_BYTES], key)[: 16 * MAX_REPEATED_CHARS]
    # Not printable are also halves of surrogate pairs, which JSON may contain, and which our messages must not.
    words = " ".join("".join(each if each.isprintable() else " " for each in beginning).split())
    if not words:
        return "no reason given"
    return words if len(words) <= MAX_REPEATED_CHARS else words[: MAX_REPEATED_CHARS - 1] + "…"


def _parsed(body: bytes) -> Any:
    """A refusal as JSON; None if it is none, or too long to be one."""
    if len(body) > _READ_BYTES:
        return None
    try:
        document = json.loads(body)
        _of_document(document)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None
    return document


def _of_document(document: Any) -> tuple[str, str]:
    """The text of an error in JSON, and its code and type."""
    inner = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(inner, dict):
        return str(inner), ""
    codes = " ".join(str(inner[name]) for name in ("code", "type") if inner.get(name) not in (None, ""))
    return str(inner.get("message") or inner.get("detail") or inner), codes
