"""What is recorded of a sample in addition to its result <-> v1: the sample itself, its prompt, its turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from crucible_bridge.codec.content import tool_call_to_v1
from crucible_bridge.codec.data import content_of, conversation_to_v1, sample_to_v1
from crucible_bridge.codec.fields import unicode_text
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    MessagePart,
    ReasoningPart,
    Sample,
    ToolCall,
    ToolSpec,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2

__all__ = [
    "recorded_sample_from_v1",
    "recorded_sample_to_v1",
    "sendable_calls",
    "sendable_to_v1",
]


def recorded_sample_to_v1(sample: Sample) -> evaluation_pb2.Sample:
    """Encode a sample as it was evaluated: text of a file that is not Unicode becomes U+FFFD."""
    asked = sample.input
    if isinstance(asked, str):
        asked = unicode_text(asked)
    elif isinstance(asked, Conversation):
        asked = _sendable(asked)
    return sample_to_v1(
        dataclasses.replace(
            sample,
            id=unicode_text(sample.id),
            input=asked,
            targets=tuple(map(unicode_text, sample.targets)),
            choices=tuple(map(unicode_text, sample.choices)),
            metadata={unicode_text(key): unicode_text(value) for key, value in sample.metadata.items()},
            choice_labels=tuple(map(unicode_text, sample.choice_labels)),
        )
    )


def recorded_sample_from_v1(message: evaluation_pb2.Sample, field: str) -> Sample:
    """Decode a sample as it was evaluated."""
    asked = content_of(message, "input", field)
    return Sample(
        id=message.id,
        input=message.text if asked is None else asked,
        targets=tuple(message.targets),
        choices=tuple(message.choices),
        metadata=dict(message.metadata),
        choice_labels=tuple(message.choice_labels),
    )


def sendable_calls(calls: Iterable[ToolCall]) -> list[types_pb2.ToolCall]:
    """Encode calls of tools that a model wrote: text that is not Unicode becomes U+FFFD."""
    return [tool_call_to_v1(call) for call in _unicode_calls(calls)]


def sendable_to_v1(conversation: Conversation) -> types_pb2.Conversation:
    """Encode a conversation that was recorded: text that is not Unicode becomes U+FFFD."""
    return conversation_to_v1(_sendable(conversation))


def _sendable(conversation: Conversation) -> Conversation:
    return Conversation(
        tuple(map(_sendable_message, conversation.messages)), tuple(map(_sendable_tool, conversation.tools))
    )


def _unicode_calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(name=unicode_text(call.name), arguments=unicode_text(call.arguments), id=unicode_text(call.id))
        for call in calls
    )


def _sendable_tool(tool: ToolSpec) -> ToolSpec:
    return dataclasses.replace(
        tool,
        name=unicode_text(tool.name),
        description=unicode_text(tool.description),
        parameters=unicode_text(tool.parameters),
        returns=unicode_text(tool.returns),
    )


def _sendable_message(message: ChatMessage) -> ChatMessage:
    return ChatMessage(
        role=unicode_text(message.role),
        content="" if message.parts else unicode_text(message.content),
        parts=tuple(map(_sendable_part, message.parts)),
        tool_calls=_unicode_calls(message.tool_calls),
        tool_call_id=unicode_text(message.tool_call_id),
        name=unicode_text(message.name),
        reasoning=unicode_text(message.reasoning),
        weight=message.weight,
    )


def _sendable_part(part: MessagePart) -> MessagePart:
    if isinstance(part, ReasoningPart):
        return ReasoningPart(unicode_text(part.text))
    return unicode_text(part) if isinstance(part, str) else part
