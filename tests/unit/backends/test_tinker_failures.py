"""What errors of the tinker library mean: whose fault they are, whether to try again, and that they tell no key."""

import inspect
import re

import pytest

from tests import needs

tinker = pytest.importorskip("tinker", reason=needs.MISSING["tinker"])

import httpx  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tinker.lib.public_interfaces import sampling_client  # noqa: E402
from tinker.lib.retryable_exception import RetryableException  # noqa: E402

from crucible_bridge.errors import BridgeError, Code  # noqa: E402
from crucible_worker.backends.openai.failures import MAX_REPEATED_CHARS  # noqa: E402
from crucible_worker.backends.tinker.client import of_error, told  # noqa: E402
from crucible_worker.backends.tinker.tokenizer import CODE_PREFIXES  # noqa: E402
from tests.service.tinker_kit import failed, status  # noqa: E402
from tests.tables import rows  # noqa: E402

KEY = "tml-canary-0123456789"
REQUEST = httpx.Request("POST", "http://127.0.0.1:9/x")


def later(cause: Exception) -> Exception:
    """A refusal that was met while an answer was fetched, as the library raises it."""
    error = ValueError(f"Error retrieving result: {cause}")
    error.__cause__ = cause
    return error


def of(error: Exception) -> BridgeError:
    """Our error for theirs."""
    return of_error(error, "lab", "tinker://run/weights/1", KEY)


FINAL, BUSY = Code.FAILED_PRECONDITION, Code.UNAVAILABLE


@rows(
    ("error", "reason", "code", "retryable"),
    [
        (status(400), "BACKEND_REFUSED", FINAL, False),
        (status(400, "prompt exceeds the context window"), "PROMPT_TOO_LONG", Code.INVALID_ARGUMENT, False),
        (status(401), "BACKEND_UNAUTHENTICATED", FINAL, False),
        (status(402), "BACKEND_QUOTA", FINAL, False),
        (status(403), "BACKEND_FORBIDDEN", FINAL, False),
        (status(404), "UNKNOWN_MODEL", Code.NOT_FOUND, False),
        (status(409), "BACKEND_FAILED", BUSY, True),
        (status(422), "BACKEND_REFUSED", FINAL, False),
        (status(429), "BACKEND_RATE_LIMITED", Code.RESOURCE_EXHAUSTED, True),
        (status(500), "BACKEND_FAILED", BUSY, True),
        (status(503), "BACKEND_FAILED", BUSY, True),
        (later(status(401)), "BACKEND_UNAUTHENTICATED", FINAL, False),
        (later(status(404)), "UNKNOWN_MODEL", Code.NOT_FOUND, False),
        (failed("unknown token", "user"), "BACKEND_REFUSED", FINAL, False),
        (failed("longer than the maximum context", "user"), "PROMPT_TOO_LONG", Code.INVALID_ARGUMENT, False),
        (failed("out of memory", "server"), "BACKEND_FAILED", BUSY, True),
        (failed("?", "unknown"), "BACKEND_FAILED", BUSY, True),
        (tinker.APITimeoutError(REQUEST), "BACKEND_TIMEOUT", BUSY, True),
        (tinker.APIConnectionError(request=REQUEST), "BACKEND_UNREACHABLE", BUSY, True),
        (tinker.TinkerError("The api_key must start with"), "BACKEND_KEY", FINAL, False),
        (ValueError("Proto deserialization failed"), "BACKEND_ANSWER", BUSY, True),
        (RetryableException("Promise expired"), "BACKEND_FAILED", BUSY, True),
        (RuntimeError("closed"), "BACKEND_FAILED", BUSY, True),
    ],
)
def test_an_error_has_its_reason(error: Exception, reason: str, code: Code, retryable: bool):
    """Keys, bills, names and requests are not tried again; what is busy, gone or garbled is."""
    ours = of(error)
    assert (ours.reason, ours.code, ours.retryable) == (reason, code, retryable)


def test_a_wait_that_is_asked_for_is_told():
    """The header says in seconds when to come again."""
    assert of(status(429, "slow down", **{"Retry-After": "7"})).retry_after == 7.0


@rows("secret", [KEY, "tml-another-9f", "eyJhbGciOi.eyJzdWIi.c2ln-_"])
@rows("make", [lambda text: status(400, text), lambda text: failed(text, "user"), ValueError])
def test_no_key_is_told(secret: str, make):
    """Neither the worker's, nor another, nor the token that the library trades a key for."""
    message = of(make(f"the key {secret} is wrong")).message
    assert secret not in message
    assert "[key]" in message


@given(st.text(max_size=2 * MAX_REPEATED_CHARS))
def test_whatever_is_told_fits_and_holds_no_key(text: str):
    """One line of bounded length that every message can carry."""
    words = told(f"{text}{KEY}{text}", KEY)
    assert KEY not in words
    assert len(words) <= MAX_REPEATED_CHARS
    assert "\n" not in words


def test_tokenizers_that_are_programs_are_known():
    """Every one for which the library would run code of others begins with a prefix that is refused."""
    source = inspect.getsource(sampling_client)
    named = re.findall(r'tokenizer_id = "([^"]+)"\n +kwargs = \{\n +"trust_remote_code": True', source)
    named += re.findall(r'tokenizer_id == "([^"]+)":\n +kwargs = \{\n +"trust_remote_code": True', source)
    assert len(named) == source.count('"trust_remote_code": True')
    assert all(name.startswith(CODE_PREFIXES) for name in named)
