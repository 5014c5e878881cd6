"""Messages of conversations as plain values, in pairs: for the journal, and for processes that read messages.

A role and a text, as every release writes them; what else there is, third:

    ["user", "12+34="]
    ["assistant", "", {"tool_calls": [["add", '{"a": 12}', "c1"]]}]

The tools of a conversation stand before its messages, as a message of no one:

    ["tools", "", {"tools": [["add", "Adds.", '{"type": "object"}', None, ""]]}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ImageAssetChunk,
    ImageChunk,
    MessagePart,
    ReasoningPart,
    ToolCall,
    ToolSpec,
)

__all__ = [
    "conversation_from_values",
    "conversation_to_values",
    "further_bytes",
    "message_from_value",
    "message_to_value",
    "messages_to_values",
    "tools_bytes",
    "tools_from_values",
    "tools_to_values",
]

_TOOLS = "tools"


def conversation_to_values(conversation: Conversation) -> list[list[Any]]:
    """A conversation as values: its messages, after its tools if it has some."""
    values = messages_to_values(conversation.messages)
    return [[_TOOLS, "", {_TOOLS: tools_to_values(conversation.tools)}], *values] if conversation.tools else values


def conversation_from_values(values: Sequence[Sequence[Any]]) -> Conversation:
    """The inverse."""
    if values and len(first := values[0]) > 2 and _TOOLS in first[2]:
        return Conversation(tuple(map(message_from_value, values[1:])), tools_from_values(first[2][_TOOLS]))
    return Conversation(tuple(map(message_from_value, values)))


def tools_to_values(tools: Iterable[ToolSpec]) -> list[list[Any]]:
    """Tools as values."""
    return [[tool.name, tool.description, tool.parameters, tool.strict, tool.returns] for tool in tools]


def tools_from_values(values: Iterable[Sequence[Any]]) -> tuple[ToolSpec, ...]:
    """The inverse."""
    return tuple(
        ToolSpec(name=name, description=description, parameters=parameters, strict=strict, returns=returns)
        for name, description, parameters, strict, returns in values
    )


def tools_bytes(tools: Iterable[ToolSpec]) -> int:
    """Approximate size of tools."""
    return sum(len(tool.name) + len(tool.description) + len(tool.parameters) + len(tool.returns) for tool in tools)


def messages_to_values(messages: Iterable[ChatMessage]) -> list[list[Any]]:
    """Messages as values."""
    return [message_to_value(message) for message in messages]


def message_to_value(message: ChatMessage) -> list[Any]:
    """A message as a value: a pair if it has text alone."""
    further: dict[str, Any] = {}
    if message.parts:
        further["parts"] = [_part_to_value(part) for part in message.parts]
    if message.tool_calls:
        further["tool_calls"] = [[call.name, call.arguments, call.id] for call in message.tool_calls]
    if message.tool_call_id:
        further["tool_call_id"] = message.tool_call_id
    if message.name:
        further["name"] = message.name
    if message.reasoning:
        further["reasoning"] = message.reasoning
    if message.weight is not None:
        further["weight"] = message.weight
    return [message.role, message.content, further] if further else [message.role, message.content]


def further_bytes(message: ChatMessage) -> int:
    """Approximate size of what a message has besides role and text."""
    images = (part.data if isinstance(part, ImageChunk) else part.location for part in message.images)
    calls = (len(call.name) + len(call.arguments) + len(call.id) for call in message.tool_calls)
    reasoned = (len(part.text) for part in message.parts if isinstance(part, ReasoningPart))
    others = len(message.tool_call_id) + len(message.name) + len(message.reasoning)
    return sum(map(len, images)) + sum(calls) + sum(reasoned) + others


def message_from_value(value: Sequence[Any]) -> ChatMessage:
    """The inverse."""
    role, content, *further = value
    if not further:
        return ChatMessage(role, content)
    held: Mapping[str, Any] = further[0]
    return ChatMessage(
        role,
        content,
        tuple(_part_from_value(part) for part in held.get("parts", ())),
        tuple(ToolCall(name=name, arguments=given, id=id) for name, given, id in held.get("tool_calls", ())),
        held.get("tool_call_id", ""),
        held.get("name", ""),
        held.get("reasoning", ""),
        held.get("weight"),
    )


def _part_to_value(part: MessagePart) -> Any:
    if isinstance(part, str):
        return part
    if isinstance(part, ReasoningPart):
        return ["reasoning", part.text]
    kind, held = ("image", bytes(part.data)) if isinstance(part, ImageChunk) else ("asset", part.location)
    return [kind, held, part.format, part.expected_tokens]


def _part_from_value(value: Any) -> MessagePart:
    if isinstance(value, str):
        return value
    if value[0] == "reasoning":
        return ReasoningPart(value[1])
    kind, held, form, expected = value
    if kind == "image":
        return ImageChunk(data=held, format=form, expected_tokens=expected)
    return ImageAssetChunk(location=held, format=form, expected_tokens=expected)
