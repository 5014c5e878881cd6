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
    ModelInput,
    ModelInputChunk,
    Sample,
    Tensor,
    TokensChunk,
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
    "model_input_from_v1",
    "model_input_to_v1",
    "prompt_from_v1",
    "sample_from_v1",
    "sample_to_v1",
    "set_prompt",
    "tensor_from_v1",
    "tensor_to_v1",
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
        image = types_pb2.ImageChunk(data=chunk.data, format=chunk.format, expected_tokens=chunk.expected_tokens)
        return types_pb2.ModelInputChunk(image=image)
    asset = types_pb2.ImageAssetChunk(
        location=chunk.location, format=chunk.format, expected_tokens=chunk.expected_tokens
    )
    return types_pb2.ModelInputChunk(image_asset=asset)


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
            image = message.image
            one_of(image.format, bounds.IMAGE_CHUNK_FORMAT_ONE_OF, child(field, "image.format"))
            tokens = image.expected_tokens if image.HasField("expected_tokens") else None
            return ImageChunk(data=image.data, format=image.format, expected_tokens=tokens)
        case "image_asset":
            asset = message.image_asset
            one_of(asset.format, bounds.IMAGE_ASSET_CHUNK_FORMAT_ONE_OF, child(field, "image_asset.format"))
            tokens = asset.expected_tokens if asset.HasField("expected_tokens") else None
            return ImageAssetChunk(location=asset.location, format=asset.format, expected_tokens=tokens)
        case _:
            raise InvalidField(field, "holds neither tokens nor an image")


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
    messages = [types_pb2.ChatMessage(role=message.role, content=message.content) for message in conversation.messages]
    return types_pb2.Conversation(messages=messages)


def conversation_from_v1(message: types_pb2.Conversation, field: str) -> Conversation:
    """Decode a conversation: at least one message, each with a role."""
    if not message.messages:
        raise InvalidField(child(field, "messages"), "is empty")
    for index, said in enumerate(message.messages):
        if not said.role:
            raise InvalidField(f"{field}.messages[{index}].role", "is empty")
    return Conversation(tuple(ChatMessage(said.role, said.content) for said in message.messages))


def sample_to_v1(sample: Sample, field: str = "sample") -> evaluation_pb2.Sample:
    """Encode a sample."""
    message = made(
        evaluation_pb2.Sample,
        field,
        id=sample.id,
        targets=several(sample.targets, f"{field}.targets"),
        choices=several(sample.choices, f"{field}.choices"),
        metadata=sample.metadata,
    )
    if isinstance(sample.input, str):
        message.text = sample.input
    elif isinstance(sample.input, Conversation):
        message.conversation.CopyFrom(conversation_to_v1(sample.input))
    else:
        message.datum.CopyFrom(datum_to_v1(sample.input))
    return message


def sample_from_v1(message: evaluation_pb2.Sample, field: str) -> Sample:
    """Decode a sample: some input, an id of at most MAX_SAMPLE_ID_BYTES."""
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
    return Sample(
        id=message.id,
        input=content,
        targets=tuple(message.targets),
        choices=tuple(message.choices),
        metadata=dict(message.metadata),
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


def prompt_from_v1(message: Any, field: str) -> str | Conversation | ModelInput:
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
