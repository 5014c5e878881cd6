"""Maps an error of the tinker library to one of our errors, with the time of a retry.

The library itself has retried for minutes before it raises a retryable error. A part of its text is repeated in ours,
without the key; its text about a refused key is not.
"""

from __future__ import annotations

import re

import tinker
from tinker.types import RequestErrorCategory

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.backends.openai.failures import (
    MAX_REPEATED_CHARS,
    FailedRequest,
    Silence,
    final,
    garbage,
    of_connection,
    of_status,
)

__all__ = ["of_error", "told"]

_KEYS = re.compile(r"\b(?:tml-|eyJ)[\w.~+/=-]*")
"""Recognizes keys, and the tokens that the library exchanges them for, by their beginning."""

_TOO_LONG = re.compile(r"context.?(length|window|size)|prompt is too long|too many tokens|max(imum)? context", re.I)


def of_error(error: BaseException, service: str, model: str, key: str) -> BridgeError:
    """Our error for one of the library.

    Args:
        error: of the library.
        service: name of the service.
        model: its name there.
        key: must not appear in the error.
    """
    # A refusal during the fetch of an answer arrives as the cause of a ValueError.
    cause = error.__cause__
    if isinstance(error, ValueError) and isinstance(cause, tinker.APIError):
        error = cause
    where = f"Tinker service {service!r}"
    if isinstance(error, tinker.APIStatusError):
        response = error.response
        asked = FailedRequest(server=service, model=model, path=response.request.url.path, key=key)
        body = _KEYS.sub("[key]", response.text).encode("utf-8", "replace")
        return of_status(asked, response.status_code, response.headers, body)
    if isinstance(error, tinker.APITimeoutError):
        return BackendError(f"{where} sent nothing in time", reason=Reason.BACKEND_TIMEOUT)
    if isinstance(error, tinker.APIConnectionError):
        asked = FailedRequest(server=service, model=model, path="")
        return of_connection(asked, Silence.UNREACHABLE, type(error).__name__, stall_seconds=0.0)
    if isinstance(error, tinker.RequestFailedError):
        return _of_request(error, where, key)
    if isinstance(error, tinker.APIResponseValidationError):
        return garbage(service, "it does not follow its API")
    if isinstance(error, tinker.TinkerError):  # about its key: missing, expired, or of another kind
        return FailedPrecondition(
            f"{where} needs another kind of key: {told(str(error), key)}", reason=Reason.BACKEND_KEY
        )
    if isinstance(error, ValueError):
        return garbage(service, told(str(error), key))
    return BackendError(
        f"{where} failed: {type(error).__name__}: {told(str(error), key)}", reason=Reason.BACKEND_FAILED
    )


def told(text: str, key: str) -> str:
    """A foreign text, safe to repeat: on one line, not too long, without keys."""
    words = " ".join(_KEYS.sub("[key]", text.replace(key, "[key]")).encode("utf-8", "replace").decode().split())
    return words if len(words) <= MAX_REPEATED_CHARS else words[: MAX_REPEATED_CHARS - 1] + "…"


def _of_request(error: tinker.RequestFailedError, where: str, key: str) -> BridgeError:
    """Our error for a request that was accepted and failed later."""
    words = told(error.message, key)
    if error.category is not RequestErrorCategory.User:
        return BackendError(f"{where} failed: {words}", reason=Reason.BACKEND_FAILED)
    if _TOO_LONG.search(words):
        return InvalidField("prompt", f"is longer than {where} takes: {words}", reason=Reason.PROMPT_TOO_LONG)
    return final(f"{where} refuses this: {words}", Reason.BACKEND_REFUSED)
