"""Answers of an OpenAI-compatible server, read without trust: their text, tokens, and what comes apart from the text.

Servers leave out what they do not have, so every field except the text may be missing. The text, the tokens and their
log-probabilities must be valid if they are there: anything else is an error, never a wrong answer. A count of tokens
that is none, and a finish reason that no one knows, cost no answer: the count is absent, the reason stays as it is.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import SampledSequence, ToolCall, UnparsedToolCall
from crucible_worker.backends.base import MAX_TEXT_BYTES, exceeds
from crucible_worker.backends.distributions import HIGHEST_LOGPROB, columns_of, impossible
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.openai.failures import final, garbage

__all__ = [
    "MAX_TOOL_CALLS",
    "REASONING_KEYS",
    "as_texts",
    "chat_answer",
    "completion_answer",
    "float_or_garbage",
    "named_pairs",
    "no_top_logprobs",
    "only_choice",
    "other_prompt",
    "possible",
    "refuse_other_prompt",
    "report_usage",
    "with_parts_apart",
]

# What a server returns apart from the text of an answer: reasoning, a refusal, calls of tools.
#
#     {"content": "46", "reasoning_content": "12+34"}                      DeepSeek, vLLM, SGLang, llama.cpp
#     {"content": "46", "reasoning": "12+34"}                              vLLM, OpenRouter, Ollama
#     {"content": [{"type": "thinking", "thinking": [...]}, ...]}          Mistral
#     {"content": null, "refusal": "I cannot"}                             OpenAI
#     {"content": null, "tool_calls": [{"function": {...}}]}               all
#
# They never make an answer invalid: what has another form is left out, or recorded as it is.

MAX_TOOL_CALLS = 100
"""Calls of tools of an answer that are recorded."""
MAX_ARGUMENT_CHARS = 256 * 1024
"""Of the arguments of a call; more are not parsed."""
_NO_NAME = "has no name of a tool"

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
"""Keys of a message for its reasoning; the first one that has any counts."""
_TEXTS = ("text", "thinking", "content", "summary")
"""Keys of a part that have its text."""
_THOUGHTS = frozenset({"thinking", "reasoning"})
_MAX_CHARS = MAX_TEXT_BYTES // 4
"""A character has at most four bytes."""
_MAX_DEPTH = 4


def with_parts_apart(sequence: SampledSequence, message: Mapping[str, Any]) -> SampledSequence:
    """An answer, with what its message has apart from the text; the first of the keys for reasoning that has any.

    Args:
        sequence: the answer.
        message: the message of a chat's choice, or the choice of a completion.
    """
    content = message.get("content")
    reasoning = next((text for key in REASONING_KEYS if (text := _text_of(message.get(key)).strip())), "")
    refusal = message.get("refusal")
    refused = refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):
        reasoning = reasoning or "\n\n".join(_parts_of(content, _THOUGHTS)).strip()
        refused = refused or "\n\n".join(_parts_of(content, {"refusal"}))
    calls = [_call_of(call) for call in _listed(message)]
    if not (reasoning or refused or calls):  # as a rule
        return sequence
    return dataclasses.replace(
        sequence,
        reasoning=reasoning[:_MAX_CHARS],
        refusal=refused[:_MAX_CHARS],
        tool_calls=tuple(call for call in calls if isinstance(call, ToolCall)),
        unparsed_tool_calls=tuple(call for call in calls if isinstance(call, UnparsedToolCall)),
    )


def as_texts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Those keys of a message of which `with_parts_apart` makes the same, with texts in place of lists and objects."""
    found: dict[str, Any] = {key: _text_of(message[key]) for key in REASONING_KEYS if key in message}
    calls = [_call_as_texts(call) for call in _listed(message)]
    return {**found, "tool_calls": calls} if calls else found


def _call_as_texts(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return {"function": {"name": "", "arguments": _json_of(call)}}
    given, arguments = call.get("id"), function.get("arguments")
    text = arguments if isinstance(arguments, str | None) else _json_of(arguments)
    return {"id": given if isinstance(given, str) else "", "function": {"name": function["name"], "arguments": text}}


def _text_of(value: Any, depth: int = 0) -> str:
    """The text of a value: itself, that of a part, or those of the parts of a list, one after the other."""
    if isinstance(value, str):
        return value
    if depth == _MAX_DEPTH:
        return ""
    if isinstance(value, Mapping):
        return next((text for key in _TEXTS if (text := _text_of(value.get(key), depth + 1))), "")
    return "".join(_text_of(part, depth + 1) for part in value) if isinstance(value, list) else ""


def _parts_of(content: Sequence[Any], kinds: frozenset[str] | set[str]) -> list[str]:
    """The texts of those parts of a content that are of these kinds."""
    found = [part for part in content if isinstance(part, Mapping) and part.get("type") in kinds]
    return [str(part["refusal"]) if "refusal" in part else _text_of(part) for part in found]


def _listed(message: Mapping[str, Any]) -> list[Any]:
    """The calls of a message, as it has them."""
    calls = message.get("tool_calls")
    listed = calls[:MAX_TOOL_CALLS] if isinstance(calls, list) else []
    old = message.get("function_call")
    return [{"function": old}] if not listed and old else listed


def _call_of(call: Any) -> ToolCall | UnparsedToolCall:
    """A call, or why it is none: it has no name, or arguments that are no JSON object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
        return UnparsedToolCall(text=_json_of(call), error=_NO_NAME)
    arguments, given = function.get("arguments"), call.get("id")
    text = "" if arguments is None else arguments if isinstance(arguments, str) else _json_of(arguments)
    if not name:
        return UnparsedToolCall(text=text[:_MAX_CHARS], error=_NO_NAME)
    if error := _no_arguments(text):
        return UnparsedToolCall(text=_json_of({"name": name, "arguments": text}), error=error)
    return ToolCall(name=name, arguments=text, id=given if isinstance(given, str) else "")


def _no_arguments(text: str) -> str:
    """Why a text has no arguments of a call; empty if it has, and for an empty text."""
    if not text.strip():
        return ""
    if len(text) > MAX_ARGUMENT_CHARS:
        return f"has {len(text):,} characters of arguments; at most {MAX_ARGUMENT_CHARS:,} are parsed"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"has arguments that are not JSON: {error}"
    return "" if isinstance(value, dict) else "has arguments that are no object"


def _json_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_MAX_CHARS]


_STOPPED = frozenset(
    {
        *(
            "stop",
            "eos",
            "eos_token",
            "end_turn",
            "stop_sequence",
            "stop_token",
            "stop_string",
            "complete",
            "completed",
        ),
        *("tool_calls", "tool_call", "tool_use", "function_call"),
    }
)
_CUT = frozenset(
    {
        *("length", "max_length", "max_tokens", "max_new_tokens", "max_output_tokens", "max_completion_tokens"),
        *("model_length", "context_length", "model_context_window_exceeded"),
    }
)
_FILTERED = frozenset(
    {
        *("content_filter", "content_filtered", "safety", "recitation", "blocklist", "prohibited_content", "spii"),
        *("guardrail_intervened", "refusal"),
    }
)
"""The server's filter has truncated or replaced the answer."""
_BROKEN_OFF = frozenset(
    {"abort", "aborted", "cancelled", "canceled", "error", "insufficient_system_resource", "timeout"}
)
"""The server has ended the answer before the model did."""
_MAX_REASON_CHARS = 40
"""Most characters of a finish reason that are recorded."""
_TEXT_PARTS = frozenset({"text", "output_text", "input_text"})
_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_text"})
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
    if choice.get("text") is None:
        raise garbage(server, "an answer without text")
    message = _plain({"content": choice["text"]}, server)
    return with_parts_apart(_sequence(document, choice, message["content"], server, top), {**choice, **message})


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
    message = _plain(message, server)
    return with_parts_apart(_sequence(document, choice, message["content"], server, top), message)


def only_choice(document: dict[str, Any], server: str) -> dict[str, Any]:
    """The one choice of an answer.

    Raises:
        BackendError: there is none, or there are several (BACKEND_ANSWER).
    """
    choices = document.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise garbage(server, "an answer without exactly one choice")
    return choices[0]


def refuse_other_prompt(document: dict[str, Any], body: dict[str, Any], server: str) -> None:
    """Refuse an answer to another prompt than the tokens that were sent, as far as the server counts them.

    Args:
        document: the answer.
        body: the request.
        server: name of the server.

    Raises:
        BackendError: the server counts another number of tokens (PROMPT_DIFFERS).
    """
    prompt = body.get("prompt")
    if isinstance(prompt, list) and (counted := _usage(document).prompt) is not None and counted != len(prompt):
        raise other_prompt(server, f"it counts {counted:,} tokens (usage.prompt_tokens)", len(prompt))


def other_prompt(server: str, what: str, sent: int) -> BackendError:
    """The error where a server has read another prompt than the tokens that were sent.

    Args:
        server: its name.
        what: how that shows.
        sent: number of tokens.
    """
    return final(
        f"server {server!r} has not read the prompt that it was sent, of {sent:,} tokens: {what}; start it so that it "
        "neither truncates prompts (truncate_prompt_tokens, --allow-auto-truncate) nor adds tokens to them",
        Reason.PROMPT_DIFFERS,
    )


def report_usage(meter: Meter, document: dict[str, Any], body: dict[str, Any]) -> None:
    """Report the usage of an answer to a meter, even if the answer is invalid; invalid numbers are not reported.

    Args:
        meter: receives the usage.
        document: the answer.
        body: the request: the prompt's tokens are counted if the server does not report them.
    """
    prompt = body.get("prompt")
    prompt_tokens, output_tokens, cached, reasoning = _usage(document)
    if prompt_tokens is None and isinstance(prompt, list):
        prompt_tokens = len(prompt)
    if output_tokens is None and not body.get("echo"):
        output_tokens = _generated(document)
    meter.add(prompt_tokens, output_tokens, cached, reasoning)


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
    """A count of tokens, be it written as 12, 12.0 or "12"; None for anything else, which no count is."""
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(_MAX_INT)):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT else None


class _Usage(NamedTuple):
    """Numbers of tokens that a server reports; None for those that it does not."""

    prompt: int | None
    output: int | None
    cached: int | None
    reasoning: int | None


def _usage(document: dict[str, Any]) -> _Usage:
    usage = _object(document.get("usage"))
    cached = _number(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = _number(usage.get("prompt_cache_hit_tokens"))  # DeepSeek's
    reasoning = _number(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return _Usage(_number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens")), cached, reasoning)


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
    usage = _usage(document)
    output = len(logprobs) if usage.output is None and logprobs is not None else usage.output
    return SampledSequence(
        text=text,
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=_stop_reason(choice, server),
        token_count=None if tokens else output,
        prompt_tokens=usage.prompt,
        cached_prompt_tokens=usage.cached,
        reasoning_tokens=usage.reasoning,
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
    """A log-probability; JSON has no minus infinity, and vLLM writes a number for it.

    Raises:
        BackendError: it cannot be one (IMPOSSIBLE_LOGPROBS).
    """
    if value > HIGHEST_LOGPROB:
        raise impossible(value)
    return -math.inf if value <= _IMPOSSIBLE else value


def _stop_reason(choice: dict[str, Any], server: str) -> str:
    """Why the answer ended: "stop", "length", another reason as the server calls it, or "" if it reports none.

    Raises:
        BackendError: a filter has truncated the answer (BACKEND_FILTERED), or the server has broken it off
            (BACKEND_ANSWER).
    """
    reported = choice.get("finish_reason")
    beginning = reported[: 4 * _MAX_REASON_CHARS].lower() if isinstance(reported, str) else ""
    reason = " ".join("".join(each if each.isprintable() else " " for each in beginning).split())[:_MAX_REASON_CHARS]
    if reason in _STOPPED:
        return "stop"
    if reason in _CUT:
        return "length"
    if reason in _FILTERED:
        message = f"server {server!r} truncated its answer by a content filter (finish reason {reason!r})"
        raise final(message, Reason.BACKEND_FILTERED)
    if reason in _BROKEN_OFF:
        raise garbage(server, f"it broke the answer off (finish reason {reason!r})")
    return reason


def _plain(message: dict[str, Any], server: str) -> dict[str, Any]:
    """A message with its content as one text; reasoning and refusals among the parts of its content are fields of it.

    Raises:
        BackendError: the content is neither text nor parts of text (BACKEND_ANSWER); the error names the part.
    """
    content = message.get("content")
    if isinstance(content, str):
        return message
    if content is None:
        return {**message, "content": ""}
    if not isinstance(content, dict | list):
        raise garbage(server, f"content that is {type(content).__name__}")
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    for part in content if isinstance(content, list) else [content]:
        field, text = _part(part, server)
        texts[field].append(text)
    joined = {field: "".join(parts) for field, parts in texts.items() if parts and not message.get(field)}
    return {**message, **joined, "content": "".join(texts["content"])}


def _part(part: Any, server: str) -> tuple[str, str]:
    """The field of a message that a part of its content belongs to, and its text."""
    if isinstance(part, str):
        return "content", part
    if not isinstance(part, dict):
        raise garbage(server, f"content with a part that is {type(part).__name__}")
    kind = part.get("type", "")
    if kind is None or kind == "":
        kind = "text"
    if not isinstance(kind, str):
        raise garbage(server, f"content with a part whose type is {type(kind).__name__}")
    if kind in _TEXT_PARTS:
        return "content", _text_of_part(part.get("text"), kind, server)
    if kind == "refusal":
        return "refusal", _text_of_part(part.get("refusal"), kind, server)
    if kind in _REASONING_PARTS:
        text = next((part[name] for name in ("thinking", "reasoning", "text") if name in part), None)
        if isinstance(text, list):  # as Mistral's: parts of text again
            return "reasoning_content", "".join(
                _text_of_part(inner.get("text") if isinstance(inner, dict) else inner, kind, server) for inner in text
            )
        return "reasoning_content", _text_of_part(text, kind, server)
    shown = " ".join(kind.split())[:_MAX_REASON_CHARS]
    message = f"server {server!r} answered with a part of type {shown!r}: only text is read"
    raise final(message, Reason.BACKEND_ANSWER)


def _text_of_part(text: Any, kind: str, server: str) -> str:
    if text is not None and not isinstance(text, str):
        raise garbage(server, f"a part of type {kind!r} whose text is {type(text).__name__}")
    return text or ""


def _token_ids(choice: dict[str, Any], server: str) -> tuple[int, ...]:
    """Token ids, if the server returns them, as vLLM does if it is configured so."""
    ids = _field(choice, "token_ids", list, server) or []
    if not all(isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= _MAX_INT for token in ids):
        raise garbage(server, "invalid token ids")
    return tuple(ids)


def _logprobs(choice: dict[str, Any], server: str) -> tuple[float, ...] | None:
    """Log-probabilities of the generated tokens: numbers, or entries with a number; servers mix up the two forms."""
    told = _field(choice, "logprobs", dict, server) or {}
    values: list[Any] | None = _field(told, "token_logprobs", list, server)
    entries = _field(told, "content", list, server)
    if values is None and entries is not None:
        values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    if values is None:
        return None
    if {*map(type, values)} <= {float}:  # as a rule
        return tuple(values)
    return tuple(float_or_garbage(value, server) for value in values)


def _field(holder: dict[str, Any], key: str, kind: type, server: str) -> Any:
    """A field of this kind; None if it is missing or null."""
    value = holder.get(key)
    if value is None:
        return None
    if not isinstance(value, kind):
        raise garbage(server, f"{key} that is {type(value).__name__}")
    return value
