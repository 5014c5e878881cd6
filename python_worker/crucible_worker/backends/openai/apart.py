"""What a server returns apart from the text of an answer: reasoning, a refusal, calls of tools.

    {"content": "46", "reasoning_content": "12+34"}                      DeepSeek, vLLM, SGLang, llama.cpp
    {"content": "46", "reasoning": "12+34"}                              vLLM, OpenRouter, Ollama
    {"content": [{"type": "thinking", "thinking": [...]}, ...]}          Mistral
    {"content": null, "refusal": "I cannot"}                             OpenAI
    {"content": null, "tool_calls": [{"function": {...}}]}               all

They never make an answer invalid: what has another form is left out, or recorded as it is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import SampledSequence, ToolCall
from crucible_worker.backends.base import MAX_TEXT_BYTES

__all__ = ["MAX_TOOL_CALLS", "REASONING_KEYS", "as_texts", "with_parts_apart"]

MAX_TOOL_CALLS = 100
"""Calls of tools of an answer that are recorded."""

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
    calls = _calls_of(message)
    if not (reasoning or refused or calls):  # as a rule
        return sequence
    return dataclasses.replace(
        sequence, reasoning=reasoning[:_MAX_CHARS], refusal=refused[:_MAX_CHARS], tool_calls=calls
    )


def as_texts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Those keys of a message of which `with_parts_apart` makes the same, with texts in place of lists and objects."""
    found: dict[str, Any] = {key: _text_of(message[key]) for key in REASONING_KEYS if key in message}
    calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in _calls_of(message)
    ]
    return {**found, "tool_calls": calls} if calls else found


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


def _calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = message.get("tool_calls")
    listed = calls[:MAX_TOOL_CALLS] if isinstance(calls, list) else []
    old = message.get("function_call")
    if not listed and old:
        listed = [{"function": old}]
    return tuple(map(_call_of, listed))


def _call_of(call: Any) -> ToolCall:
    """A call; one of another form has no name, and its JSON as its arguments."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(call, Mapping) and isinstance(function, Mapping) and isinstance(function.get("name"), str):
        arguments, given = function.get("arguments", ""), call.get("id")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCall(name=function["name"], arguments=text[:_MAX_CHARS], id=given if isinstance(given, str) else "")
    return ToolCall(name="", arguments=json.dumps(call, ensure_ascii=False)[:_MAX_CHARS], id="")
