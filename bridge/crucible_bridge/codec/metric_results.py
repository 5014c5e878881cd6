"""Replies of metrics calls <-> the bytes of their responses; bytes for the reason in `codec.token_metrics`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from crucible_bridge.codec.bulk import Encoder, stored_from_v1, tensors_at, vector_from_v1
from crucible_bridge.codec.field_ranges import parsed, plainly, split
from crucible_bridge.codec.fields import entry
from crucible_bridge.codec.generated import usage_from_v1, usage_to_v1
from crucible_bridge.codec.metrics import DPO_COLUMNS
from crucible_bridge.codec.results import fill_metrics, metrics_from_v1, metrics_to_v1
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import DPOMetrics, KLPenalty, KLPostUpdate, KLSampleTrain, MeanNLL, Metrics, Ragged, Usage
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "dpo_metrics_from_bytes",
    "dpo_metrics_to_bytes",
    "kl_penalty_from_bytes",
    "kl_penalty_to_bytes",
    "kl_post_update_from_bytes",
    "kl_post_update_to_bytes",
    "kl_sample_train_from_bytes",
    "kl_sample_train_to_bytes",
    "mean_nll_from_bytes",
    "mean_nll_to_bytes",
    "metrics_from_bytes",
    "metrics_to_bytes",
    "penalty_of",
]


def kl_sample_train_to_bytes(result: KLSampleTrain) -> bytes:
    """Encode the KL of sampling and training policy."""
    pieces = Encoder()
    for key, array in result.per_sequence.items():
        pieces.add_entry(pb.ComputeKLSampleTrainResponse.PER_SEQUENCE_FIELD_NUMBER, key, array)
    return pieces.joined(
        pb.ComputeKLSampleTrainResponse(metrics=metrics_to_v1(result.metrics), action_tokens=result.action_tokens)
    )


def kl_sample_train_from_bytes(data: bytes) -> KLSampleTrain:
    """Decode the KL of sampling and training policy."""
    message = parsed(pb.ComputeKLSampleTrainResponse, data)
    return KLSampleTrain(
        metrics=metrics_from_v1(message.metrics, "metrics"),
        action_tokens=message.action_tokens,
        per_sequence={
            key: vector_from_v1(tensor, entry("per_sequence", key))
            for key, tensor in sorted(message.per_sequence.items())
        },
    )


def kl_post_update_to_bytes(result: KLPostUpdate) -> bytes:
    """Encode the KL of a policy before and after an update."""
    return pb.ComputeKLPostUpdateResponse(
        metrics=metrics_to_v1(result.metrics),
        action_tokens=result.action_tokens,
        usage=_usage_to_v1(result.usage),
    ).SerializeToString()


def kl_post_update_from_bytes(data: bytes) -> KLPostUpdate:
    """Decode the KL of a policy before and after an update."""
    message = parsed(pb.ComputeKLPostUpdateResponse, data)
    return KLPostUpdate(
        metrics=metrics_from_v1(message.metrics, "metrics"),
        action_tokens=message.action_tokens,
        usage=_usage_from_v1(message),
    )


def kl_penalty_to_bytes(result: KLPenalty) -> bytes:
    """Encode advantages with a KL penalty."""
    pieces = Encoder()
    given = result.advantages
    # The reply to columns is a column.
    tensors = [given.values] if isinstance(given, Ragged) else given
    pieces.add_tensors(pb.IncorporateKLPenaltyResponse.ADVANTAGES_FIELD_NUMBER, tensors)
    return pieces.joined(
        pb.IncorporateKLPenaltyResponse(
            metrics=metrics_to_v1(result.metrics),
            usage=_usage_to_v1(result.usage),
            without_penalty=result.without_penalty,
        )
    )


def kl_penalty_from_bytes(data: bytes) -> KLPenalty:
    """Decode advantages with a KL penalty; they are views of the bytes. `penalty_of` splits them."""
    return plainly(pb.IncorporateKLPenaltyResponse, data, _kl_penalty)


def penalty_of(lengths: Sequence[int], data: bytes) -> KLPenalty:
    """Decode a reply for data of these lengths: one array per datum, also if a single one was sent for all.

    Raises:
        InvalidField: it is malformed, or its advantages are of other lengths.
    """
    result = kl_penalty_from_bytes(data)
    match result.advantages:
        case [np.ndarray() as values] if len(lengths) != 1 and values.shape == (sum(lengths),):
            advantages = tuple(Ragged(values, np.array(lengths, np.int64)))
            result = dataclasses.replace(result, advantages=advantages)
    without = result.without_penalty or [""] * len(lengths)
    if len(without) != len(lengths):
        raise InvalidField("without_penalty", f"has {len(without)} entries, the data are {len(lengths)}")
    if result.advantages and any(without):
        kept = [array[:0] if why else array for array, why in zip(result.advantages, without)]
        result = dataclasses.replace(result, advantages=tuple(kept))
    found = [array.shape for array in result.advantages]
    if found and found != [(0 if why else length,) for length, why in zip(lengths, without)]:
        raise InvalidField("advantages", f"are {len(found)} arrays that do not fit the {len(lengths)} data")
    return result


def _kl_penalty(data: bytes) -> KLPenalty:
    number = pb.IncorporateKLPenaltyResponse.ADVANTAGES_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (number,))
    message = parsed(pb.IncorporateKLPenaltyResponse, rest)
    return KLPenalty(
        metrics=metrics_from_v1(message.metrics, "metrics"),
        advantages=tuple(tensors_at(data, spans[number], "advantages", decode=stored_from_v1)),
        usage=_usage_from_v1(message),
        without_penalty=tuple(message.without_penalty),
    )


def _usage_to_v1(usage: Usage | None) -> types_pb2.Usage | None:
    return None if usage is None else usage_to_v1(usage)


def _usage_from_v1(message: Any, name: str = "usage") -> Usage | None:
    return usage_from_v1(getattr(message, name), name) if message.HasField(name) else None


def dpo_metrics_to_bytes(result: DPOMetrics) -> bytes:
    """Encode metrics of preference pairs."""
    columns = {name: getattr(result, ours) for name, ours in DPO_COLUMNS.items()}
    return pb.ComputeDPOMetricsResponse(
        metrics=metrics_to_v1(result.metrics),
        policy_usage=_usage_to_v1(result.policy_usage),
        reference_usage=_usage_to_v1(result.reference_usage),
        **{name: array_to_v1(column) for name, column in columns.items() if column is not None},
    ).SerializeToString()


def dpo_metrics_from_bytes(data: bytes) -> DPOMetrics:
    """Decode metrics of preference pairs."""
    message = parsed(pb.ComputeDPOMetricsResponse, data)
    columns = {
        ours: vector_from_v1(getattr(message, name), name)
        for name, ours in DPO_COLUMNS.items()
        if message.HasField(name)
    }
    return DPOMetrics(
        metrics=metrics_from_v1(message.metrics, "metrics"),
        policy_usage=_usage_from_v1(message, "policy_usage"),
        reference_usage=_usage_from_v1(message, "reference_usage"),
        chosen=columns.get("chosen"),
        rejected=columns.get("rejected"),
        chosen_reference=columns.get("chosen_reference"),
        rejected_reference=columns.get("rejected_reference"),
    )


def mean_nll_to_bytes(result: MeanNLL) -> bytes:
    """Encode a mean NLL."""
    return pb.ComputeMeanNLLResponse(
        metrics=metrics_to_v1(result.metrics), total_weight=result.total_weight
    ).SerializeToString()


def mean_nll_from_bytes(data: bytes) -> MeanNLL:
    """Decode a mean NLL."""
    message = parsed(pb.ComputeMeanNLLResponse, data)
    return MeanNLL(metrics=metrics_from_v1(message.metrics, "metrics"), total_weight=message.total_weight)


def metrics_to_bytes(response: type[Any], metrics: Metrics) -> bytes:
    """Encode a response with only metrics."""
    message = response()
    fill_metrics(message.metrics, metrics)
    # Sorted: in protobuf's own order, filling the reader's table takes quadratic time.
    return message.SerializeToString(deterministic=True)


def metrics_from_bytes(response: type[Any], data: bytes) -> Metrics:
    """Decode a response with only metrics."""
    return metrics_from_v1(parsed(response, data).metrics, "metrics")
