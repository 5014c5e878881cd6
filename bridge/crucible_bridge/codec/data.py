"""Tensors, model inputs, data and samples <-> v1."""

from __future__ import annotations

from typing import Any

from crucible_bridge.arrays import from_tensor, to_tensor
from crucible_bridge.codec.fields import (
    EnumPair,
    at_most_bytes,
    child,
    entry,
    made,
    one_of,
    several,
)
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Array,
    ChatMessage,
    Conversation,
    Datum,
    Dtype,
    ImageAssetChunk,
    ImageChunk,
    MessagePart,
    ModelInput,
    ModelInputChunk,
    ReasoningPart,
    Sample,
    Tensor,
    TokensChunk,
    ToolCall,
    bounds,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2

__all__ = [
    "MAX_SAMPLE_ID_BYTES",
    "array_from_v1",
    "array_to_v1",
    "conversation_from_v1",
    "conversation_to_v1",
    "datum_from_v1",
    "datum_to_v1",
    "get_prompt",
    "model_input_from_v1",
    "model_input_to_v1",
    "sample_from_v1",
    "sample_to_v1",
    "set_prompt",
    "tensor_from_v1",
    "tensor_to_v1",
    "tool_call_from_v1",
    "tool_call_to_v1",
]

MAX_SAMPLE_ID_BYTES = bounds.SAMPLE_ID_MAX_BYTES
"""Longest id of a sample in a request."""

_DTYPE = EnumPair(Dtype, types_pb2.Dtype, "DTYPE_")


def tensor_to_v1(tensor: Tensor) -> types_pb2.Tensor:
    """Encode a tensor; its bytes are copied unchanged."""
    data = tensor.data if isinstance(tensor.data, bytes) else bytes(tensor.data)
    return types_pb2.Tensor(dtype=_DTYPE.to_v1(tensor.dtype), shape=tensor.shape, data=data)


def tensor_from_v1(message: types_pb2.Tensor, field: str) -> Tensor:
    """Decode a tensor; `from_tensor` checks whether its bytes fit."""
    dtype = _DTYPE.from_v1(message.dtype, child(field, "dtype"))
    return Tensor(dtype=dtype, shape=tuple(message.shape), data=message.data)


def array_to_v1(array: Array) -> types_pb2.Tensor:
    """Encode an array."""
    return tensor_to_v1(to_tensor(array))


def array_from_v1(message: types_pb2.Tensor, field: str) -> Array:
    """Decode an array, a read-only view of the message's bytes."""
    return from_tensor(tensor_from_v1(message, field), field)


def model_input_to_v1(model_input: ModelInput) -> types_pb2.ModelInput:
    """Encode a model's input."""
    return types_pb2.ModelInput(chunks=[_chunk_to_v1(chunk) for chunk in model_input.chunks])


def model_input_from_v1(message: types_pb2.ModelInput, field: str) -> ModelInput:
    """Decode a model's input."""
    return ModelInput(
        tuple(_chunk_from_v1(chunk, f"{field}.chunks[{index}]") for index, chunk in enumerate(message.chunks))
    )


def _chunk_to_v1(chunk: ModelInputChunk) -> types_pb2.ModelInputChunk:
    if isinstance(chunk, TokensChunk):
        return types_pb2.ModelInputChunk(tokens=array_to_v1(chunk.tokens))
    if isinstance(chunk, ImageChunk):
        return types_pb2.ModelInputChunk(image=_image_to_v1(chunk))
    return types_pb2.ModelInputChunk(image_asset=_asset_to_v1(chunk))


def _chunk_from_v1(message: types_pb2.ModelInputChunk, field: str) -> ModelInputChunk:
    match message.WhichOneof("chunk"):
        case "tokens":
            tokens = array_from_v1(message.tokens, child(field, "tokens"))
            if isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.dtype.name not in ("int32", "int64"):
                raise InvalidField(
                    child(field, "tokens"),
                    f"has {tokens.dtype} of shape {list(tokens.shape)}, must have i32 or i64 in one dimension",
                )
            return TokensChunk(tokens=tokens)
        case "image":
            return _image_from_v1(message.image, child(field, "image"))
        case "image_asset":
            return _asset_from_v1(message.image_asset, child(field, "image_asset"))
        case _:
            raise InvalidField(field, "holds neither tokens nor an image")


def _image_to_v1(image: ImageChunk) -> types_pb2.ImageChunk:
    return types_pb2.ImageChunk(data=image.data, format=image.format, expected_tokens=image.expected_tokens)


def _image_from_v1(message: types_pb2.ImageChunk, field: str) -> ImageChunk:
    one_of(message.format, bounds.IMAGE_CHUNK_FORMAT_ONE_OF, child(field, "format"))
    tokens = message.expected_tokens if message.HasField("expected_tokens") else None
    return ImageChunk(data=message.data, format=message.format, expected_tokens=tokens)


def _asset_to_v1(asset: ImageAssetChunk) -> types_pb2.ImageAssetChunk:
    return types_pb2.ImageAssetChunk(
        location=asset.location, format=asset.format, expected_tokens=asset.expected_tokens
    )


def _asset_from_v1(message: types_pb2.ImageAssetChunk, field: str) -> ImageAssetChunk:
    one_of(message.format, bounds.IMAGE_ASSET_CHUNK_FORMAT_ONE_OF, child(field, "format"))
    tokens = message.expected_tokens if message.HasField("expected_tokens") else None
    return ImageAssetChunk(location=message.location, format=message.format, expected_tokens=tokens)


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
    return types_pb2.Conversation(messages=[_message_to_v1(message) for message in conversation.messages])


def conversation_from_v1(message: types_pb2.Conversation, field: str) -> Conversation:
    """Decode a conversation: at least one message, each with a role."""
    if not message.messages:
        raise InvalidField(child(field, "messages"), "is empty")
    said = enumerate(message.messages)
    return Conversation(tuple(_message_from_v1(one, f"{field}.messages[{index}]") for index, one in said))


def _message_to_v1(message: ChatMessage) -> types_pb2.ChatMessage:
    if message.is_pair:  # the usual case
        return types_pb2.ChatMessage(role=message.role, content=message.content)
    return types_pb2.ChatMessage(
        role=message.role,
        content="" if message.parts else message.content,
        parts=[_part_to_v1(part) for part in message.parts],
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
    given = tuple(_part_from_v1(part, f"{parts}[{index}]") for index, part in enumerate(message.parts))
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


def _part_to_v1(part: MessagePart) -> types_pb2.MessagePart:
    if isinstance(part, str):
        return types_pb2.MessagePart(text=part)
    if isinstance(part, ReasoningPart):
        return types_pb2.MessagePart(reasoning=part.text)
    if isinstance(part, ImageChunk):
        return types_pb2.MessagePart(image=_image_to_v1(part))
    return types_pb2.MessagePart(image_asset=_asset_to_v1(part))


def _part_from_v1(message: types_pb2.MessagePart, field: str) -> MessagePart:
    match message.WhichOneof("part"):
        case "text":
            return message.text
        case "image":
            return _image_from_v1(message.image, child(field, "image"))
        case "image_asset":
            return _asset_from_v1(message.image_asset, child(field, "image_asset"))
        case "reasoning":
            return ReasoningPart(message.reasoning)
        case _:
            raise InvalidField(field, "holds neither text nor an image nor reasoning")


def tool_call_to_v1(call: ToolCall) -> types_pb2.ToolCall:
    """Encode a call of a tool."""
    return types_pb2.ToolCall(name=call.name, arguments=call.arguments, id=call.id)


def tool_call_from_v1(message: types_pb2.ToolCall, field: str) -> ToolCall:
    """Decode a call of a tool; it may have no name, as what a model wrote."""
    return ToolCall(name=message.name, arguments=message.arguments, id=message.id)


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
    match message.WhichOneof("input"):
        case "text":
            content: str | Conversation | Datum = message.text
        case "conversation":
            content = conversation_from_v1(message.conversation, child(field, "conversation"))
        case "datum":
            content = datum_from_v1(message.datum, child(field, "datum"))
        case _:
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
    match message.WhichOneof("prompt"):
        case "text":
            return message.text
        case "conversation":
            return conversation_from_v1(message.conversation, child(field, "conversation"))
        case "model_input":
            return model_input_from_v1(message.model_input, child(field, "model_input"))
        case _:
            raise InvalidField(field, "has no prompt")
