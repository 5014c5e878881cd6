"""Answers of an OpenAI-compatible server, read without trust.

Servers leave out what they do not have, so every field except the text and the finish reason may be missing. A field
that is there must be valid: anything else is an error, never a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import SampledSequence
from crucible_worker.backends.base import MAX_TEXT_BYTES, exceeds
from crucible_worker.backends.distributions import columns_of
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.openai.apart import with_parts_apart
from crucible_worker.backends.openai.failures import final, garbage

__all__ = [
    "chat_answer",
    "completion_answer",
    "float_or_garbage",
    "named_pairs",
    "no_top_logprobs",
    "only_choice",
    "possible",
    "report_usage",
]

_STOPPED = frozenset({"stop", "eos", "eos_token", "stop_sequence", "tool_calls", "function_call"})
_CUT = frozenset({"length", "max_tokens"})
_MAX_INT = (1 << 31) - 1
"""Token ids and counts have 32 bits on the wire."""
_ID_MARK = "token_id:"
"""What vLLM writes before an id in place of a token's text."""
_IMPOSSIBLE = -9999.0
"""What vLLM writes for minus infinity."""


def completion_answer(document: dict[str, Any], server: str, top: int = 0) -> SampledSequence:
    """Read the answer of /completions; `top` likeliest tokens in place of each generated one have to be there.

    Raises:
        FailedPrecondition: they are not, or not by their ids (NO_TOP_LOGPROBS).
        BackendError: it is invalid (BACKEND_ANSWER), or was truncated by the server's filter (BACKEND_FILTERED).
    """
    choice = only_choice(document, server)
    return with_parts_apart(_sequence(document, choice, _text(choice, "text", server), server, top), choice)


def chat_answer(document: dict[str, Any], server: str, top: int = 0) -> SampledSequence:
    """Read the answer of /chat/completions; one that only calls a tool has no text. `top` as of `completion_answer`.

    Raises:
        FailedPrecondition: likewise.
        BackendError: it is invalid (BACKEND_ANSWER), or was truncated by the server's filter (BACKEND_FILTERED).
    """
    choice = only_choice(document, server)
    message = _field(choice, "message", dict, server)
    if message is None:
        raise garbage(server, "a choice without a message")
    text = "" if message.get("content") is None else _text(message, "content", server)
    return with_parts_apart(_sequence(document, choice, text, server, top), message)


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


def _sequence(document: dict[str, Any], choice: dict[str, Any], text: str, server: str, top: int) -> SampledSequence:
    if exceeds(text):
        raise final(
            f"server {server!r} answered with more than {MAX_TEXT_BYTES:,} bytes of text", Reason.BACKEND_ANSWER
        )
    logprobs = _logprobs(choice, server)
    tokens = _token_ids(choice, server) or (_named_tokens(choice, server) if top else ())
    columns = _top_columns(choice, server, top) if top else (None, None)
    if columns[0] is not None and len(columns[0]) != len(tokens if tokens else logprobs or ()):
        raise garbage(server, f"the likeliest tokens of {len(columns[0]):,} places for another number of tokens")
    return SampledSequence(
        text=text,
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=_stop_reason(choice, server),
        token_count=None if tokens else _output_count(document, logprobs, server),
        prompt_tokens=_count(document, "prompt_tokens", server),
        cached_prompt_tokens=_cached(document),
        reasoning_tokens=_reasoning(document),
        top_tokens=columns[0],
        top_logprobs=columns[1],
    )


def _named_tokens(choice: dict[str, Any], server: str) -> tuple[int, ...]:
    """Ids of the generated tokens, if the server writes them as "token_id:N"; empty otherwise."""
    told = _field(choice, "logprobs", dict, server) or {}
    named = _field(told, "tokens", list, server)
    if named is None:
        entries = _field(told, "content", list, server) or []
        named = [entry.get("token") if isinstance(entry, dict) else None for entry in entries]
    found = [_named_id(name) for name in named]
    return tuple(token for token in found if token is not None) if None not in found else ()


def _top_columns(choice: dict[str, Any], server: str, top: int) -> tuple[np.ndarray, np.ndarray]:
    told = _field(choice, "logprobs", dict, server) or {}
    rows = _field(told, "top_logprobs", list, server)
    if rows is None:
        entries = _field(told, "content", list, server)
        if entries is None:
            raise no_top_logprobs(server)
        rows = [_by_name(entry, server) for entry in entries]
    if (pairs := named_pairs(rows, server)) is None:
        raise no_top_logprobs(server)
    return columns_of(pairs, top)


def _by_name(entry: Any, server: str) -> dict[Any, Any]:
    """The likeliest tokens of an answer to a chat, in the form of a completion."""
    tops = entry.get("top_logprobs") if isinstance(entry, dict) else None
    if not isinstance(tops, list) or not all(isinstance(each, dict) for each in tops):
        raise garbage(server, "top_logprobs that are no list of tokens")
    return {str(each.get("token")): each.get("logprob") for each in tops}


def named_pairs(rows: Sequence[Any], server: str) -> list[list[tuple[int, float]]] | None:
    """Token ids and log-probabilities of maps from "token_id:N"; None if one is empty, or has texts as its keys.

    Raises:
        BackendError: a value is no number (BACKEND_ANSWER).
    """
    found: list[list[tuple[int, float]]] = []
    for row in rows:
        pairs = [(_named_id(name), value) for name, value in row.items()] if isinstance(row, dict) else []
        known = [(token, possible(float_or_garbage(value, server))) for token, value in pairs if token is not None]
        if not known or len(known) != len(pairs):
            return None
        found.append(known)
    return found


def _named_id(name: Any) -> int | None:
    """The id in "token_id:N"; None for any other text."""
    digits = name.removeprefix(_ID_MARK) if isinstance(name, str) and name.startswith(_ID_MARK) else ""
    # A number with too many digits is not parsed.
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(_MAX_INT)) or int(digits) > _MAX_INT:
        return None
    return int(digits)


def no_top_logprobs(server: str) -> FailedPrecondition:
    """The error where a server does not name the likeliest tokens as they are needed."""
    return FailedPrecondition(
        f"server {server!r} does not name the likeliest tokens by their ids: vLLM does, with "
        "return_tokens_as_token_ids",
        reason=Reason.NO_TOP_LOGPROBS,
    )


def possible(value: float) -> float:
    """A log-probability; JSON has no minus infinity, and vLLM writes a number for it."""
    return -math.inf if value <= _IMPOSSIBLE else value


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
