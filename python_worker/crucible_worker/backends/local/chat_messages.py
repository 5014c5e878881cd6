"""Messages between the worker and the process of a tokenizer: plain values without the bytes of images, in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible_bridge.types import ChatMessage, ImageChunk, MessagePart, ReasoningPart, ToolCall

__all__ = ["from_plain", "to_plain"]

_PLACE = ImageChunk(data=b"", format="png")
"""Stands for every image: a tokenizer needs its place alone."""


def to_plain(message: ChatMessage) -> dict[str, Any]:
    """A message as plain values; None in its parts is an image, a text in a list is reasoning."""
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        plain["parts"] = [_part_to_plain(part) for part in message.parts]
    if message.tool_calls:
        plain["tool_calls"] = [[call.name, call.arguments, call.id] for call in message.tool_calls]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    if message.reasoning:
        plain["reasoning"] = message.reasoning
    if message.weight is not None:
        plain["weight"] = message.weight
    return plain


def from_plain(plain: Mapping[str, Any]) -> ChatMessage:
    """The inverse, with an empty image in the place of each."""
    return ChatMessage(
        plain["role"],
        plain["content"],
        tuple(_part_from_plain(part) for part in plain.get("parts", ())),
        tuple(ToolCall(name=name, arguments=given, id=id) for name, given, id in plain.get("tool_calls", ())),
        plain.get("tool_call_id", ""),
        plain.get("name", ""),
        plain.get("reasoning", ""),
        plain.get("weight"),
    )


def _part_to_plain(part: MessagePart) -> str | list[str] | None:
    if isinstance(part, ReasoningPart):
        return [part.text]
    return part if isinstance(part, str) else None


def _part_from_plain(part: str | list[str] | None) -> MessagePart:
    if part is None:
        return _PLACE
    return part if isinstance(part, str) else ReasoningPart(part[0])
