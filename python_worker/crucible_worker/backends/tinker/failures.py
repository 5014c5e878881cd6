"""What an error of the tinker library means to whoever asked: one of our errors, with when to come again.

The library has tried again by itself before it raises what is retryable, for minutes. What it says is repeated in part,
without the key, and not at all where the key was refused.
"""

from __future__ import annotations

import re

import tinker
from tinker.types import RequestErrorCategory

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.backends.openai.failures import (
    MAX_TOLD_CHARS,
    FailedRequest,
    Silence,
    final,
    garbage,
    of_connection,
    of_status,
)

__all__ = ["of_error", "told"]

_KEYS = re.compile(r"\b(?:tml-|eyJ)[\w.~+/=-]*")
"""Keys, and the tokens that the library trades them for, begin in this way."""

_TOO_LONG = re.compile(r"context.?(length|window|size)|prompt is too long|too many tokens|max(imum)? context", re.I)


def of_error(error: BaseException, service: str, model: str, key: str) -> BridgeError:
    """The error for what the library raised.

    Args:
        error: what it raised.
        service: name of the service.
        model: what was asked there.
        key: to be left out of what is told.
    """
    # A refusal met while an answer is fetched comes as the cause of a ValueError.
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
        return garbage(service, "it is not what its API says")
    if isinstance(error, tinker.TinkerError):  # of its own key: missing, expired, or not one of its kind
        return FailedPrecondition(
            f"{where} takes another kind of key: {told(str(error), key)}", reason=Reason.BACKEND_KEY
        )
    if isinstance(error, ValueError):
        return garbage(service, told(str(error), key))
    return BackendError(
        f"{where} failed: {type(error).__name__}: {told(str(error), key)}", reason=Reason.BACKEND_FAILED
    )


def told(text: str, key: str) -> str:
    """What somebody else said, fit to be repeated: on one line, not too long, without keys."""
    words = " ".join(_KEYS.sub("[key]", text.replace(key, "[key]")).encode("utf-8", "replace").decode().split())
    return words if len(words) <= MAX_TOLD_CHARS else words[: MAX_TOLD_CHARS - 1] + "…"


def _of_request(error: tinker.RequestFailedError, where: str, key: str) -> BridgeError:
    """A request that was taken, and failed later."""
    words = told(error.message, key)
    if error.category is not RequestErrorCategory.User:
        return BackendError(f"{where} failed: {words}", reason=Reason.BACKEND_FAILED)
    if _TOO_LONG.search(words):
        return InvalidField("prompt", f"is longer than {where} takes: {words}", reason=Reason.PROMPT_TOO_LONG)
    return final(f"{where} refuses this: {words}", Reason.BACKEND_REFUSED)
