"""What is recorded of a sample in addition to its result <-> v1: the sample itself, its prompt, its turns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from crucible_bridge.codec.bulk import stored_from_v1
from crucible_bridge.codec.data import (
    array_to_v1,
    conversation_from_v1,
    conversation_to_v1,
    datum_from_v1,
    sample_to_v1,
    tool_call_from_v1,
    tool_call_to_v1,
)
from crucible_bridge.codec.fields import child, unicode_text
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    MessagePart,
    ReasoningPart,
    Sample,
    SamplePrompt,
    TokenPrompt,
    ToolCall,
    Turn,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2

__all__ = [
    "recorded_sample_from_v1",
    "recorded_sample_to_v1",
    "sample_prompt_from_v1",
    "sample_prompt_to_v1",
    "sendable_calls",
    "turn_from_v1",
    "turn_to_v1",
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
    match message.WhichOneof("input"):
        case "conversation":
            asked: str | Conversation | Datum = conversation_from_v1(message.conversation, child(field, "conversation"))
        case "datum":
            asked = datum_from_v1(message.datum, child(field, "datum"))
        case _:
            asked = message.text
    return Sample(
        id=message.id,
        input=asked,
        targets=tuple(message.targets),
        choices=tuple(message.choices),
        metadata=dict(message.metadata),
        choice_labels=tuple(message.choice_labels),
    )


def sample_prompt_to_v1(prompt: SamplePrompt) -> evaluation_pb2.SamplePrompt:
    """Encode a prompt."""
    match prompt:
        case str():
            return evaluation_pb2.SamplePrompt(text=unicode_text(prompt))
        case Conversation():
            return evaluation_pb2.SamplePrompt(conversation=conversation_to_v1(_sendable(prompt)))
        case TokenPrompt(count):
            return evaluation_pb2.SamplePrompt(token_count=count)


def sample_prompt_from_v1(message: evaluation_pb2.SamplePrompt, field: str) -> SamplePrompt:
    """Decode a prompt.

    Raises:
        InvalidField: it is in a form that this version does not know, or the conversation is malformed.
    """
    match message.WhichOneof("prompt"):
        case "text":
            return message.text
        case "conversation":
            return conversation_from_v1(message.conversation, child(field, "conversation"))
        case "token_count":
            return TokenPrompt(message.token_count)
        case _:
            raise InvalidField(field, "has no prompt")


def turn_to_v1(turn: Turn) -> evaluation_pb2.Turn:
    """Encode a turn."""
    return evaluation_pb2.Turn(
        role=unicode_text(turn.role),
        text=unicode_text(turn.text),
        reward=turn.reward,
        tokens=turn.tokens,
        rollout=turn.rollout,
        model=turn.model,
        token_ids=_array_to_v1(turn.token_ids),
        logprobs=_array_to_v1(turn.logprobs),
        reasoning=unicode_text(turn.reasoning),
        refusal=unicode_text(turn.refusal),
        tool_calls=sendable_calls(turn.tool_calls),
    )


def turn_from_v1(message: evaluation_pb2.Turn, field: str) -> Turn:
    """Decode a turn.

    Raises:
        InvalidField: its reward is not finite, or an array has another dtype or length than it should.
    """
    reward = message.reward if message.HasField("reward") else None
    if reward is not None and not math.isfinite(reward):
        raise InvalidField(child(field, "reward"), f"is {reward}, must be finite")
    return Turn(
        role=message.role,
        text=message.text,
        reward=reward,
        tokens=message.tokens if message.HasField("tokens") else None,
        rollout=message.rollout,
        model=message.model,
        token_ids=_array_from_v1(message, "token_ids", field),
        logprobs=_array_from_v1(message, "logprobs", field),
        reasoning=message.reasoning,
        refusal=message.refusal,
        tool_calls=tuple(tool_call_from_v1(call, field) for call in message.tool_calls),
    )


def sendable_calls(calls: Iterable[ToolCall]) -> list[types_pb2.ToolCall]:
    """Encode calls of tools that a model wrote: text that is not Unicode becomes U+FFFD."""
    return [tool_call_to_v1(call) for call in _unicode_calls(calls)]


def _unicode_calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(name=unicode_text(call.name), arguments=unicode_text(call.arguments), id=unicode_text(call.id))
        for call in calls
    )


def _sendable(conversation: Conversation) -> Conversation:
    return Conversation(tuple(map(_sendable_message, conversation.messages)))


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


def _array_to_v1(array: np.ndarray | None) -> types_pb2.Tensor | None:
    return None if array is None else array_to_v1(array)


def _array_from_v1(message: Any, name: str, field: str) -> np.ndarray | None:
    if not message.HasField(name):
        return None
    path = child(field, name)
    array = stored_from_v1(getattr(message, name), path)
    if not isinstance(array, np.ndarray):
        raise InvalidField(path, f"has {array.dtype}, must have i32 or f32")
    return array
