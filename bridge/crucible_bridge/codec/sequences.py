"""Generated sequences, and arrays of log-probabilities, <-> v1."""

from __future__ import annotations

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.codec.bulk import vector_from_v1
from crucible_bridge.codec.content import tool_call_from_v1, unparsed_tool_call_from_v1, unparsed_tool_call_to_v1
from crucible_bridge.codec.fields import child, unicode_text
from crucible_bridge.codec.tensors import array_from_v1, array_to_v1
from crucible_bridge.codec.transcripts import sendable_calls
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import SampledSequence
from crucible_bridge.v1 import models_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "floats_from_v1",
    "floats_to_v1",
    "sampled_sequence_from_v1",
    "sampled_sequence_to_v1",
    "table_from_v1",
    "token_array_from_v1",
    "token_table_from_v1",
]

floats_to_v1, floats_from_v1 = array_to_v1, vector_from_v1


def table_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    """Decode rows of numbers, shape (n, m): a read-only view of the message's bytes; f16 and bf16 are widened.

    Raises:
        InvalidField: it is malformed, or has other than two dimensions.
    """
    return _two_dimensional(floats(array_from_v1(message, field), field), field)


def token_table_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    """Decode rows of token ids, shape (n, m), int32 or int64: a read-only view of the message's bytes.

    Raises:
        InvalidField: it is malformed, holds no token ids, or has other than two dimensions.
    """
    return _two_dimensional(token_array_from_v1(message, field), field)


def token_array_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    """Decode token ids of any shape, int32 or int64: a read-only view of the message's bytes.

    Raises:
        InvalidField: it is malformed, or holds no token ids.
    """
    array = array_from_v1(message, field)
    if not isinstance(array, np.ndarray) or array.dtype.name not in ("int32", "int64"):
        raise InvalidField(field, f"has {array.dtype}, must have i32 or i64")
    return array


def _two_dimensional(array: np.ndarray, field: str) -> np.ndarray:
    if array.ndim != 2:
        raise InvalidField(field, f"has shape {list(array.shape)}, must have two dimensions")
    return array


def _token_count(message: pb.SampledSequence, known: int) -> int | None:
    """Their number where the tokens themselves do not say it."""
    return message.output_tokens if message.HasField("output_tokens") and message.output_tokens != known else None


def sampled_sequence_to_v1(sequence: SampledSequence) -> pb.SampledSequence:
    """Encode what a model generated."""
    return pb.SampledSequence(
        text=unicode_text(sequence.text),
        tokens=array_to_v1(np.array(sequence.tokens, np.int32)),
        logprobs=None if sequence.logprobs is None else floats_to_v1(np.array(sequence.logprobs, np.float64)),
        stop_reason=sequence.stop_reason,
        output_tokens=sequence.output_tokens,
        prompt_tokens=sequence.prompt_tokens,
        cached_prompt_tokens=sequence.cached_prompt_tokens,
        reasoning_tokens=sequence.reasoning_tokens,
        top_tokens=None if sequence.top_tokens is None else array_to_v1(sequence.top_tokens),
        top_logprobs=None if sequence.top_logprobs is None else floats_to_v1(sequence.top_logprobs),
        reasoning=unicode_text(sequence.reasoning),
        refusal=unicode_text(sequence.refusal),
        tool_calls=sendable_calls(sequence.tool_calls),
        unparsed_tool_calls=[unparsed_tool_call_to_v1(call) for call in sequence.unparsed_tool_calls],
    )


def sampled_sequence_from_v1(message: pb.SampledSequence, field: str) -> SampledSequence:
    """Decode what a model generated.

    Raises:
        InvalidField: an array is malformed, or its tokens are not token ids.
    """
    tokens = vector_from_v1(message.tokens, child(field, "tokens"))
    if tokens.dtype.kind not in "iu":
        raise InvalidField(child(field, "tokens"), f"holds {tokens.dtype}, not token ids")
    logprobs = top_tokens = top_logprobs = None
    if message.HasField("top_tokens"):
        top_tokens = token_table_from_v1(message.top_tokens, child(field, "top_tokens"))
        top_logprobs = table_from_v1(message.top_logprobs, child(field, "top_logprobs"))
    if message.HasField("logprobs"):
        logprobs = tuple(floats_from_v1(message.logprobs, child(field, "logprobs")).tolist())
    return SampledSequence(
        text=message.text,
        tokens=tuple(tokens.tolist()),
        logprobs=logprobs,
        stop_reason=message.stop_reason,
        token_count=_token_count(message, tokens.size),
        prompt_tokens=message.prompt_tokens if message.HasField("prompt_tokens") else None,
        cached_prompt_tokens=message.cached_prompt_tokens if message.HasField("cached_prompt_tokens") else None,
        reasoning_tokens=message.reasoning_tokens if message.HasField("reasoning_tokens") else None,
        top_tokens=top_tokens,
        top_logprobs=top_logprobs,
        reasoning=message.reasoning,
        refusal=message.refusal,
        tool_calls=tuple(tool_call_from_v1(call, field) for call in message.tool_calls),
        unparsed_tool_calls=tuple(unparsed_tool_call_from_v1(call, field) for call in message.unparsed_tool_calls),
    )
