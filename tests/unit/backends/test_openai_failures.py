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


CHATS = FailedRequest(server="s", model="m", path="/chat/completions", key=KEY)


@rows(
    ("asked", "status", "words", "cured"),
    [
        (CHATS, 400, "As of transformers v4.44, default chat template is no longer allowed, so provide one", True),
        (
            CHATS,
            404,
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean "
            "to use v1/completions?",
            True,
        ),
        (CHATS, 400, "The model does not support Chat Completions API", True),
        (CHATS, 404, "Not Found", True),
        (CHATS, 405, "Method Not Allowed", True),
        (CHATS, 400, "Unsupported value: 'temperature' does not support 0 with this chat model.", False),
        (CHATS, 400, "messages.0.content: field required", False),
        (CHATS, 422, "no such field", False),
        (CHATS, 404, "The model `m` does not exist.", False),
        (CHATS, 404, "model 'm' not found, try pulling it first", False),
        (CHATS, 413, "Request Entity Too Large", False),
        (
            ASKED,
            404,
            "This is a chat model and not supported in the v1/completions endpoint. Did you mean to use "
            "v1/chat/completions?",
            True,
        ),
        (ASKED, 404, "page not found", True),
        (ASKED, 400, "no such field", False),
        (ASKED, 404, "The model `m` does not exist.", False),
    ],
)
def test_a_cure_stands_where_it_is_one(asked, status, words, cured):
    """Another form of the request is named only if the server refuses this form, or does not have its path."""
    error = of_status(asked, status, {}, error_body(words))
    cure = "--renderer raw" if asked is CHATS else "if the server only chats"
    assert (cure in error.message) is cured
    assert words in error.message


@rows(
    ("text", "shown"),
    [
        ("Incorrect API key provided: sk-proj-abcdefghijklmnop1234", "Incorrect API key provided: [key]"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [key]"),
        ("authorization: abcdef123456; next", "authorization: [key]; next"),
        ('"api_key": "abcdef123456", "n": 1', '"api_key": "[key]", "n": 1'),
        ("https://x/y?api_key=abcdef123456&n=1", "https://x/y?api_key=[key]&n=1"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln was refused", "token [key] was refused"),
        ("hf_abcdefghijklmnop is expired", "hf_... is expired"),
        (f"key {KEY} is unknown", "key [key] is unknown"),
        ("a\x00b\x1b[2Jc\u202ed\ne", "a b [2Jc d e"),
        ("skeletonizationalgorithms of max_tokens", "skeletonizationalgorithms of max_tokens"),
        ("the password is wrong", "the password is wrong"),
    ],
)
@rows("as_json", [True, False])
def test_no_secret_is_repeated(text, shown, as_json):
    """Keys, tokens and control characters do not get into an error, whichever side they belong to."""
    body = error_body(text) if as_json else text.encode()
    message = of_status(ASKED, 400, {}, body).message
    assert message.endswith(f": {shown.replace('hf_...', '[key]')}")


@rows("size", [64 * 1024, 64 * 1024 + 3])
def test_a_key_at_the_end_of_what_was_read_is_not_repeated(size):
    """Only a part of the key may have been read, behind nothing but blanks."""
    body = (b" " * (64 * 1024 - 5) + KEY.encode())[:size]
    assert KEY[:4] not in of_status(ASKED, 400, {}, body).message


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
