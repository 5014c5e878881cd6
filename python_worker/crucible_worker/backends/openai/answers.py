"""Answers of an OpenAI-compatible server, read without trust.

Servers leave out what they do not have, so every field except the text and the finish reason may be missing. A field
that is there must be valid: anything else is an error, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_bridge.types import SampledSequence
from crucible_worker.backends.base import MAX_TEXT_BYTES, exceeds
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.openai.failures import final, garbage

__all__ = ["chat_answer", "completion_answer", "float_or_garbage", "only_choice", "report_usage"]

_STOPPED = frozenset({"stop", "eos", "eos_token", "stop_sequence", "tool_calls", "function_call"})
_CUT = frozenset({"length", "max_tokens"})
_MAX_INT = (1 << 31) - 1
"""Token ids and counts have 32 bits on the wire."""


def completion_answer(document: dict[str, Any], server: str) -> SampledSequence:
    """Read the answer of /completions.

    Raises:
        BackendError: it is invalid (BACKEND_ANSWER), or was truncated by the server's filter (BACKEND_FILTERED).
    """
    choice = only_choice(document, server)
    return _sequence(document, choice, _text(choice, "text", server), server)


def chat_answer(document: dict[str, Any], server: str) -> SampledSequence:
    """Read the answer of /chat/completions; one that only calls a tool has no text.

    Raises:
        BackendError: it is invalid (BACKEND_ANSWER), or was truncated by the server's filter (BACKEND_FILTERED).
    """
    choice = only_choice(document, server)
    message = _field(choice, "message", dict, server)
    if message is None:
        raise garbage(server, "a choice without a message")
    text = "" if message.get("content") is None else _text(message, "content", server)
    return _sequence(document, choice, text, server)


def only_choice(document: dict[str, Any], server: str) -> dict[str, Any]:
    """The one choice of an answer.

    Raises:
        BackendError: there is none, or there are several (BACKEND_ANSWER).
    """
    choices = document.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise garbage(server, "an answer without exactly one choice")
    return choices[0]


def report_usage(meter: Meter, document: dict[str, Any], body: dict[str, Any]) -> None:
    """Report the usage of an answer to a meter, even if the answer is invalid; invalid numbers are not reported.

    Args:
        meter: receives the usage.
        document: the answer.
        body: the request: the prompt's tokens are counted if the server does not report them.
    """
    usage, prompt = _object(document.get("usage")), body.get("prompt")
    prompt_tokens, output_tokens = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
    if prompt_tokens is None and isinstance(prompt, list):
        prompt_tokens = len(prompt)
    if output_tokens is None and not body.get("echo"):
        output_tokens = _generated(document)
    meter.add(prompt_tokens, output_tokens, _cached(document), _reasoning(document))


def float_or_garbage(value: Any, server: str) -> float:
    """A number.

    Raises:
        BackendError: it is not a number (BACKEND_ANSWER).
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise garbage(server, f"a log-probability that is {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise garbage(server, "a log-probability beyond float64") from None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT else None


def _cached(document: dict[str, Any]) -> int | None:
    usage = _object(document.get("usage"))
    cached = _number(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return _number(usage.get("prompt_cache_hit_tokens")) if cached is None else cached  # the second one is DeepSeek's


def _reasoning(document: dict[str, Any]) -> int | None:
    details = _object(document.get("usage")).get("completion_tokens_details")
    return _number(_object(details).get("reasoning_tokens"))


def _generated(document: dict[str, Any]) -> int | None:
    """Number of generated tokens, if the answer lists them."""
    choices = document.get("choices")
    choice = _object(choices[0]) if isinstance(choices, list) and len(choices) == 1 else {}
    said = _object(choice.get("logprobs"))
    for tokens in (choice.get("token_ids"), said.get("token_logprobs"), said.get("content")):
        if isinstance(tokens, list) and tokens:
            return len(tokens)
    return None


def _sequence(document: dict[str, Any], choice: dict[str, Any], text: str, server: str) -> SampledSequence:
    if exceeds(text):
        raise final(
            f"server {server!r} answered with more than {MAX_TEXT_BYTES:,} bytes of text", Reason.BACKEND_ANSWER
        )
    logprobs = _logprobs(choice, server)
    tokens = _token_ids(choice, server)
    return SampledSequence(
        text=text,
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=_stop_reason(choice, server),
        token_count=None if tokens else _output_count(document, logprobs, server),
        prompt_tokens=_count(document, "prompt_tokens", server),
        cached_prompt_tokens=_cached(document),
        reasoning_tokens=_reasoning(document),
    )


def _stop_reason(choice: dict[str, Any], server: str) -> str:
    reason = _field(choice, "finish_reason", str, server)
    if reason in _STOPPED:
        return "stop"
    if reason in _CUT:
        return "length"
    if reason == "content_filter":
        raise final(f"server {server!r} truncated its answer by a content filter", Reason.BACKEND_FILTERED)
    raise garbage(server, f"an answer with the finish reason {str(reason)[:40]!r}")


def _token_ids(choice: dict[str, Any], server: str) -> tuple[int, ...]:
    """Token ids, if the server returns them, as vLLM does if it is configured so."""
    ids = _field(choice, "token_ids", list, server) or []
    if not all(isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= _MAX_INT for token in ids):
        raise garbage(server, "invalid token ids")
    return tuple(ids)


def _output_count(document: dict[str, Any], logprobs: Sequence[float] | None, server: str) -> int | None:
    count = _count(document, "completion_tokens", server)
    return len(logprobs) if count is None and logprobs is not None else count


def _count(document: dict[str, Any], key: str, server: str) -> int | None:
    """Number of tokens of a kind, if the server reports it."""
    usage = _field(document, "usage", dict, server) or {}
    count = _field(usage, key, int, server)
    if count is not None and not 0 <= count <= _MAX_INT:
        raise garbage(server, "an invalid number of tokens")
    return count


def _logprobs(choice: dict[str, Any], server: str) -> tuple[float, ...] | None:
    """Log-probabilities of the generated tokens: numbers, or entries with a number; servers mix up the two forms."""
    told = _field(choice, "logprobs", dict, server) or {}
    values = _field(told, "token_logprobs", list, server)
    entries = _field(told, "content", list, server)
    if values is None and entries is not None:
        values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    return None if values is None else tuple(float_or_garbage(value, server) for value in values)


def _text(holder: dict[str, Any], key: str, server: str) -> str:
    text = _field(holder, key, str, server)
    if text is None:
        raise garbage(server, f"an answer without {key}")
    return text


def _field(holder: dict[str, Any], key: str, kind: type, server: str) -> Any:
    """A field of this kind; None if it is missing or null."""
    value = holder.get(key)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise garbage(server, f"{key} that is {type(value).__name__}")
    return value
