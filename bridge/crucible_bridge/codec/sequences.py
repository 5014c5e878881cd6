"""Generated sequences, and arrays of log-probabilities, <-> v1."""

from __future__ import annotations

import numpy as np

from crucible_bridge.codec.bulk import vector_from_v1
from crucible_bridge.codec.data import array_to_v1
from crucible_bridge.codec.fields import child, unicode_text
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import SampledSequence
from crucible_bridge.v1 import models_pb2 as pb

__all__ = ["floats_from_v1", "floats_to_v1", "sampled_sequence_from_v1", "sampled_sequence_to_v1"]

floats_to_v1, floats_from_v1 = array_to_v1, vector_from_v1


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
    )


def sampled_sequence_from_v1(message: pb.SampledSequence, field: str) -> SampledSequence:
    """Decode what a model generated.

    Raises:
        InvalidField: an array is malformed, or its tokens are not token ids.
    """
    tokens = vector_from_v1(message.tokens, child(field, "tokens"))
    if tokens.dtype.kind not in "iu":
        raise InvalidField(child(field, "tokens"), f"holds {tokens.dtype}, not token ids")
    logprobs = None
    if message.HasField("logprobs"):
        logprobs = tuple(floats_from_v1(message.logprobs, child(field, "logprobs")).tolist())
    return SampledSequence(
        text=message.text,
        tokens=tuple(tokens.tolist()),
        logprobs=logprobs,
        stop_reason=message.stop_reason,
        token_count=None if message.output_tokens == tokens.size else message.output_tokens,
        prompt_tokens=message.prompt_tokens if message.HasField("prompt_tokens") else None,
        cached_prompt_tokens=message.cached_prompt_tokens if message.HasField("cached_prompt_tokens") else None,
        reasoning_tokens=message.reasoning_tokens if message.HasField("reasoning_tokens") else None,
    )
