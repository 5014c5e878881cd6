"""Refusals and silences of OpenAI-compatible servers: which error each becomes, and what it repeats."""

import datetime
import json
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, Code, InvalidField, NotFound
from crucible_worker.backends.openai.failures import (
    MAX_REPEATED_CHARS,
    MAX_RETRY_AFTER_SECONDS,
    FailedRequest,
    Silence,
    garbage,
    of_connection,
    of_status,
    retry_after,
)
from tests.tables import rows

KEY = "canary-0123456789"
ASKED = FailedRequest(server="s", model="m", path="/completions", key=KEY)
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def error_body(message: str, code: str | None = None) -> bytes:
    """An error as OpenAI puts it."""
    return json.dumps({"error": {"message": message, "code": code}}).encode()


@rows(
    ("status", "body", "kind", "code", "reason", "retryable"),
    [
        (302, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_REDIRECT", False),
        (400, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_REFUSED", False),
        (401, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_UNAUTHENTICATED", False),
        (402, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_QUOTA", False),
        (403, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_FORBIDDEN", False),
        (404, b"", NotFound, Code.NOT_FOUND, "UNKNOWN_MODEL", False),
        (405, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_REFUSED", False),
        (408, b"", BackendError, Code.UNAVAILABLE, "BACKEND_FAILED", True),
        (422, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_REFUSED", False),
        (429, b"", BackendError, Code.RESOURCE_EXHAUSTED, "BACKEND_RATE_LIMITED", True),
        (
            429,
            error_body("pay", "insufficient_quota"),
            BackendError,
            Code.FAILED_PRECONDITION,
            "BACKEND_QUOTA",
            False,
        ),
        (500, b"", BackendError, Code.UNAVAILABLE, "BACKEND_FAILED", True),
        (501, b"", BackendError, Code.FAILED_PRECONDITION, "BACKEND_REFUSED", False),
        (503, b"", BackendError, Code.UNAVAILABLE, "BACKEND_FAILED", True),
    ],
)
def test_a_status_has_one_meaning(status, body, kind, code, reason, retryable):
    """Each status becomes one error, and only those that may pass are retryable."""
    error = of_status(ASKED, status, {}, body)
    assert (type(error), error.code, error.reason, error.retryable) == (kind, code, reason, retryable)


@rows(
    "body",
    [
        error_body("This model's maximum context length is 32 tokens. However, you requested 40 tokens."),
        error_body("too big", "context_length_exceeded"),
        error_body("the request exceeds the available context size, try increasing it"),
        json.dumps(
            {"message": "The input (40 tokens) is longer than the model's context length (32 tokens)."}
        ).encode(),
    ],
    ids=["vllm", "openai", "llama.cpp", "sglang"],
)
def test_a_prompt_that_is_too_long_is_told_as_such(body):
    """Servers say in words of their own that a prompt does not fit: it can never work, and the prompt is at fault."""
    error = of_status(ASKED, 400, {}, body)
    assert isinstance(error, InvalidField)
    assert (error.field, error.reason) == ("prompt", "PROMPT_TOO_LONG")


@rows("status", [429, 503])
@rows(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("3601", 3600.0),
        ("3600", 3600.0),
        ("Thu, 01 Jan 99999999999999999999 12:00:00 GMT", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds, status):
    """Both forms of Retry-After are honoured; what is neither says nothing."""
    assert retry_after({"Retry-After": text}, NOON) == seconds
    if not text.endswith("GMT"):
        assert of_status(ASKED, status, {"retry-after": text}, b"").retry_after == seconds


@pytest.mark.parametrize("silence", Silence)
def test_silence_is_retryable(silence):
    """A request without an answer may be asked again."""
    error = of_connection(ASKED, silence, "SomeError", stall_seconds=2)
    assert (error.reason, error.retryable, error.code) == (silence.value, True, Code.UNAVAILABLE)
    assert "SomeError" in error.message


@given(st.text())
def test_no_retry_after_is_too_odd(text):
    """Whatever the header says, it is a bounded number of seconds or nothing."""
    seconds = retry_after({"Retry-After": text})
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


def test_nonsense_is_retryable():
    """The next answer may come from another machine."""
    assert garbage("s", "bytes").retryable


@given(st.sampled_from([int(status) for status in HTTPStatus if status >= 300]), st.binary(max_size=2000) | st.text())
def test_no_refusal_is_too_odd(status, body):
    """Whatever a server sends with a refusal, there is one short error that a message of ours can carry."""
    error = of_status(ASKED, status, {}, body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"))
    error.message.encode()
    assert len(error.message) < MAX_REPEATED_CHARS + 100


@rows(
    "body",
    [
        b'{"error": ' + b"[" * 5000 + KEY.encode(),
        error_body(f"invalid key {KEY}"),
        f"plain {KEY}".encode(),
        json.dumps({"detail": [{"msg": KEY}]}).encode(),
        json.dumps({"error": {"message": "half a pair \ud800", "code": KEY}}).encode(),
    ],
)
@rows("status", [400, 401, 404, 429, 500])
def test_the_key_is_not_repeated(body, status):
    """A server that says the key back does not get it into an error."""
    error = of_status(ASKED, status, {}, body)
    assert KEY not in str(error)
    assert KEY not in repr(ASKED)
    error.message.encode()
