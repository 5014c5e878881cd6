"""Tensors, model inputs, data and samples <-> v1."""

from __future__ import annotations

from typing import Any

from crucible_bridge.codec.content import (
    message_part_from_v1,
    message_part_to_v1,
    model_input_from_v1,
    model_input_to_v1,
    tool_call_from_v1,
    tool_call_to_v1,
    tool_spec_from_v1,
    tool_spec_to_v1,
)
from crucible_bridge.codec.fields import (
    at_most_bytes,
    child,
    entry,
    made,
    several,
)
from crucible_bridge.codec.tensors import array_from_v1, array_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ModelInput,
    Sample,
    bounds,
)
from crucible_bridge.types.tools import MAX_TOOLS, MAX_TOOLS_BYTES, check_tools
from crucible_bridge.v1 import evaluation_pb2, types_pb2

__all__ = [
    "MAX_SAMPLE_ID_BYTES",
    "content_of",
    "conversation_from_v1",
    "conversation_to_v1",
    "datum_from_v1",
    "datum_to_v1",
    "get_prompt",
    "sample_from_v1",
    "sample_to_v1",
    "set_prompt",
]

MAX_SAMPLE_ID_BYTES = bounds.SAMPLE_ID_MAX_BYTES
"""Longest id of a sample in a request."""


def datum_to_v1(datum: Datum) -> types_pb2.Datum:
    """Encode a datum."""
    return types_pb2.Datum(
        model_input=model_input_to_v1(datum.model_input),
        loss_fn_inputs={key: array_to_v1(array) for key, array in datum.loss_fn_inputs.items()},
    )


def datum_from_v1(message: types_pb2.Datum, field: str) -> Datum:
    """Decode a datum."""
    if not message.HasField("model_input"):
        raise InvalidField(child(field, "model_input"), "is not given")
    inputs = child(field, "loss_fn_inputs")
    return Datum(
        model_input=model_input_from_v1(message.model_input, child(field, "model_input")),
        loss_fn_inputs={
            key: array_from_v1(tensor, entry(inputs, key)) for key, tensor in sorted(message.loss_fn_inputs.items())
        },
    )


def conversation_to_v1(conversation: Conversation) -> types_pb2.Conversation:
    """Encode a conversation."""
    return types_pb2.Conversation(
        messages=[_message_to_v1(message) for message in conversation.messages],
        tools=[tool_spec_to_v1(tool) for tool in conversation.tools],
    )


def conversation_from_v1(message: types_pb2.Conversation, field: str) -> Conversation:
    """Decode a conversation: at least one message, each with a role; tools as `check_tools` accepts them."""
    if not message.messages:
        raise InvalidField(child(field, "messages"), "is empty")
    said = enumerate(message.messages)
    messages = tuple(_message_from_v1(one, f"{field}.messages[{index}]") for index, one in said)
    if not message.tools:
        return Conversation(messages)
    place = child(field, "tools")
    if (count := len(message.tools)) > MAX_TOOLS:
        raise InvalidField(place, f"has {count:,} tools, at most {MAX_TOOLS} are accepted")
    if (size := sum(tool.ByteSize() for tool in message.tools)) > 2 * MAX_TOOLS_BYTES:
        raise InvalidField(place, f"has {size:,} bytes of tools, at most {MAX_TOOLS_BYTES:,} are accepted")
    tools = tuple(tool_spec_from_v1(tool, f"{place}[{index}]") for index, tool in enumerate(message.tools))
    check_tools(tools, place)
    return Conversation(messages, tools)


def _message_to_v1(message: ChatMessage) -> types_pb2.ChatMessage:
    if message.is_pair:  # the usual case
        return types_pb2.ChatMessage(role=message.role, content=message.content)
    return types_pb2.ChatMessage(
        role=message.role,
        content="" if message.parts else message.content,
        parts=[message_part_to_v1(part) for part in message.parts],
        tool_calls=[tool_call_to_v1(call) for call in message.tool_calls],
        tool_call_id=message.tool_call_id,
        name=message.name,
        reasoning=message.reasoning,
        weight=message.weight,
    )


def _message_from_v1(message: types_pb2.ChatMessage, field: str) -> ChatMessage:
    if not message.role:
        raise InvalidField(child(field, "role"), "is empty")
    weight = message.weight if message.HasField("weight") else None
    further = message.parts or message.tool_calls or message.tool_call_id or message.name or message.reasoning
    if weight is None and not further:
        return ChatMessage(message.role, message.content)
    parts = child(field, "parts")
    calls = child(field, "tool_calls")
    given = tuple(message_part_from_v1(part, f"{parts}[{index}]") for index, part in enumerate(message.parts))
    try:
        return ChatMessage(
            message.role,
            message.content,
            given,
            tuple(tool_call_from_v1(call, f"{calls}[{index}]") for index, call in enumerate(message.tool_calls)),
            message.tool_call_id,
            message.name,
            message.reasoning,
            weight,
        )
    except InvalidField as error:  # of what belongs together; the error has only the path within the message
        path = error.field if error.field.startswith(field) else child(field, error.field)
        raise InvalidField(path, error.message) from error


def sample_to_v1(sample: Sample, field: str = "sample") -> evaluation_pb2.Sample:
    """Encode a sample."""
    message = made(
        evaluation_pb2.Sample,
        field,
        id=sample.id,
        targets=several(sample.targets, f"{field}.targets"),
        choices=several(sample.choices, f"{field}.choices"),
        metadata=sample.metadata,
        choice_labels=several(sample.choice_labels, f"{field}.choice_labels"),
    )
    if isinstance(sample.input, str):
        message.text = sample.input
    elif isinstance(sample.input, Conversation):
        message.conversation.CopyFrom(conversation_to_v1(sample.input))
    else:
        message.datum.CopyFrom(datum_to_v1(sample.input))
    return message


def sample_from_v1(message: evaluation_pb2.Sample, field: str) -> Sample:
    """Decode a sample: some input, an id of at most MAX_SAMPLE_ID_BYTES, no label or one for each choice."""
    at_most_bytes(message.id, MAX_SAMPLE_ID_BYTES, child(field, "id"))
    if (content := content_of(message, "input", field)) is None:
        raise InvalidField(field, "has no input")
    labels = message.choice_labels
    if labels and (len(labels) != len(message.choices) or len(set(labels)) != len(labels)):
        problem = f"has {len(labels):,} labels for {len(message.choices):,} choices: each needs a different one"
        raise InvalidField(child(field, "choice_labels"), problem)
    return Sample(
        id=message.id,
        input=content,
        targets=tuple(message.targets),
        choices=tuple(message.choices),
        metadata=dict(message.metadata),
        choice_labels=tuple(labels),
    )


def set_prompt(message: Any, prompt: str | Conversation | ModelInput, field: str) -> None:
    """Encode a prompt into a message that has a prompt.

    Raises:
        InvalidField: it is not a prompt, or cannot be sent.
    """
    match prompt:
        case str():
            message.text = prompt
        case Conversation():
            message.conversation.CopyFrom(conversation_to_v1(prompt))
        case ModelInput():
            message.model_input.CopyFrom(model_input_to_v1(prompt))
        case _:
            raise InvalidField(field, f"is a {type(prompt).__name__}, not a prompt")


def get_prompt(message: Any, field: str) -> str | Conversation | ModelInput:
    """Decode the prompt of a message that has a prompt.

    Raises:
        InvalidField: there is none, or it is malformed.
    """
    if (prompt := content_of(message, "prompt", field)) is None:
        raise InvalidField(field, "has no prompt")
    return prompt


def content_of(message: Any, oneof: str, field: str) -> Any:
    """Decode a oneof of a text, a conversation, tokens or a datum; None if it has none of them.

    Raises:
        InvalidField: it is malformed.
    """
    match message.WhichOneof(oneof):
        case "text":
            return message.text
        case "conversation":
            return conversation_from_v1(message.conversation, child(field, "conversation"))
        case "model_input":
            return model_input_from_v1(message.model_input, child(field, "model_input"))
        case "datum":
            return datum_from_v1(message.datum, child(field, "datum"))
        case _:
            return None
