"""Requests of metrics calls over samples <-> their bytes; those over tokens are in `codec.token_metrics`.

Decoding checks only the structure; the function that computes checks whether lengths fit each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import as_array
from crucible_bridge.codec.bulk import Encoder, vector_from_v1
from crucible_bridge.codec.elements import request_parsed
from crucible_bridge.codec.fields import entry, made, of_type, sendable, several
from crucible_bridge.codec.generated import (
    model_ref_from_v1,
    model_ref_to_v1,
    preference_pair_from_v1,
    preference_pair_to_v1,
)
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ClassificationMetricsRequest,
    DPOMetricsRequest,
    ModelRef,
    PassAtKRequest,
    SamplingClientMetricsRequest,
    TrajectoryBatch,
    TrajectoryMetricsRequest,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "DPO_COLUMNS",
    "classification_metrics_request_from_bytes",
    "classification_metrics_request_to_bytes",
    "dpo_metrics_request_from_bytes",
    "dpo_metrics_request_to_bytes",
    "pass_at_k_request_from_bytes",
    "pass_at_k_request_to_bytes",
    "sampling_client_metrics_request_from_bytes",
    "sampling_client_metrics_request_to_bytes",
    "trajectory_metrics_request_from_bytes",
    "trajectory_metrics_request_to_bytes",
]

_COUNTS = ("trajectories_per_group", "transitions_per_trajectory", "action_tokens", "observation_tokens")
_CACHED = "cached_observation_tokens"
_REWARDS = ("rewards", "final_rewards")
_METRICS = ("transition_metrics", "trajectory_metrics")
_PRESENT = ("transition_metric_present", "trajectory_metric_present")
_TEXTS_AT_ONCE = 65_536
DPO_COLUMNS: Mapping[str, str] = {
    "chosen_logprobs": "chosen",
    "rejected_logprobs": "rejected",
    "chosen_reference_logprobs": "chosen_reference",
    "rejected_reference_logprobs": "rejected_reference",
}
"""Columns of log-probabilities of preference pairs: fields of messages, and those of our types."""


def trajectory_metrics_request_to_bytes(request: TrajectoryMetricsRequest) -> bytes:
    """Encode a request for a summary of trajectories."""
    of_type(request.batch, TrajectoryBatch, "batch")
    batch, fields = request.batch, pb.TrajectoryBatch.DESCRIPTOR.fields_by_name
    columns = Encoder()
    for name in (*_COUNTS, *_REWARDS):
        columns.add_tensors(fields[name].number, [as_array(getattr(batch, name), field=f"batch.{name}")])
    if batch.cached_observation_tokens is not None:
        array = as_array(batch.cached_observation_tokens, field=f"batch.{_CACHED}")
        columns.add_tensors(fields[_CACHED].number, [array])
    for name in (*_METRICS, *_PRESENT):
        for key, array in getattr(batch, name).items():
            path = entry(f"batch.{name}", key)
            with sendable(path):
                columns.add_entry(fields[name].number, key, as_array(array, field=path))
    places = [f"batch.tags[{index}]" for index in range(len(batch.tags))]
    tags = [made(pb.Tags, place, tags=several(tags, place)) for place, tags in zip(places, batch.tags, strict=True)]
    rest = made(
        pb.ComputeTrajectoryMetricsRequest,
        "",
        batch=pb.TrajectoryBatch(tags=tags),
        good_threshold=request.good_threshold,
    )
    pieces = Encoder()
    pieces.add_encoded(pb.ComputeTrajectoryMetricsRequest.BATCH_FIELD_NUMBER, columns)
    # The batch in two parts, which a parser merges: the columns, and the tags.
    return pieces.joined(rest)


def trajectory_metrics_request_from_bytes(data: bytes) -> TrajectoryMetricsRequest:
    """Decode a request for a summary of trajectories."""
    message = request_parsed(pb.ComputeTrajectoryMetricsRequest, data)
    batch = message.batch
    columns: dict[str, Any] = {name: _integers(batch, name, f"batch.{name}") for name in _COUNTS}
    columns |= {name: _vector(batch, name, f"batch.{name}") for name in _REWARDS}
    if batch.HasField(_CACHED):
        columns[_CACHED] = _integers(batch, _CACHED, f"batch.{_CACHED}")
    columns |= {name: _map_from_v1(getattr(batch, name), f"batch.{name}", vector_from_v1) for name in _METRICS}
    columns |= {name: _map_from_v1(getattr(batch, name), f"batch.{name}", _flags) for name in _PRESENT}
    return TrajectoryMetricsRequest(
        batch=TrajectoryBatch(**columns, tags=tuple(tuple(tags.tags) for tags in batch.tags)),
        good_threshold=message.good_threshold if message.HasField("good_threshold") else None,
    )


def dpo_metrics_request_to_bytes(request: DPOMetricsRequest) -> bytes:
    """Encode a request for metrics of preference pairs."""
    columns = {name: getattr(request, ours) for name, ours in DPO_COLUMNS.items()}
    return made(
        pb.ComputeDPOMetricsRequest,
        "",
        **{name: _tensor(column, name) for name, column in columns.items() if column is not None},
        dpo_beta=request.beta,
        policy=None if request.policy is None else model_ref_to_v1(request.policy),
        reference=None if request.reference is None else model_ref_to_v1(request.reference),
        pairs=[preference_pair_to_v1(pair, f"pairs[{index}]") for index, pair in enumerate(request.pairs)],
        deadline_ms=request.deadline_ms,
    ).SerializeToString()


def dpo_metrics_request_from_bytes(data: bytes) -> DPOMetricsRequest:
    """Decode a request for metrics of preference pairs."""
    message = request_parsed(pb.ComputeDPOMetricsRequest, data)
    columns: dict[str, np.ndarray] = {}
    models: dict[str, ModelRef] = {}
    for (name, ours), model in zip(DPO_COLUMNS.items(), ("policy", "policy", "reference", "reference"), strict=True):
        if not message.HasField(model):
            columns[ours] = _vector(message, name, name)
        elif message.HasField(name):
            raise InvalidField(name, f"is given, and the {model} to query as well: leave one of them out")
        else:
            models[model] = model_ref_from_v1(getattr(message, model), model)
    if message.pairs and not models:
        raise InvalidField("pairs", "are given, and no model to query with them: set policy or reference")
    if models and not message.pairs:
        raise InvalidField("pairs", "is empty, and a model is to be queried with them")
    return DPOMetricsRequest(
        chosen=columns.get("chosen"),
        rejected=columns.get("rejected"),
        chosen_reference=columns.get("chosen_reference"),
        rejected_reference=columns.get("rejected_reference"),
        beta=message.dpo_beta,
        policy=models.get("policy"),
        reference=models.get("reference"),
        pairs=tuple(preference_pair_from_v1(pair, f"pairs[{index}]") for index, pair in enumerate(message.pairs)),
        deadline_ms=message.deadline_ms if message.HasField("deadline_ms") else None,
    )


def sampling_client_metrics_request_to_bytes(request: SamplingClientMetricsRequest) -> bytes:
    """Encode a request about steps and times of sampling."""
    return pb.ComputeSamplingClientMetricsRequest(
        sampling_client_steps=_tensor(request.steps, "sampling_client_steps"),
        sampling_seconds=_tensor(request.seconds, "sampling_seconds"),
    ).SerializeToString()


def sampling_client_metrics_request_from_bytes(data: bytes) -> SamplingClientMetricsRequest:
    """Decode a request about steps and times of sampling."""
    message = request_parsed(pb.ComputeSamplingClientMetricsRequest, data)
    return SamplingClientMetricsRequest(
        steps=_integers(message, "sampling_client_steps", "sampling_client_steps"),
        seconds=_vector(message, "sampling_seconds", "sampling_seconds"),
    )


def classification_metrics_request_to_bytes(request: ClassificationMetricsRequest) -> bytes:
    """Encode a request for classification metrics."""
    return made(
        pb.ComputeClassificationMetricsRequest,
        "",
        predictions=several(request.predictions, "predictions"),
        targets=several(request.targets, "targets"),
        positive=request.positive,
    ).SerializeToString()


def classification_metrics_request_from_bytes(data: bytes) -> ClassificationMetricsRequest:
    """Decode a request for classification metrics."""
    message = request_parsed(pb.ComputeClassificationMetricsRequest, data)
    return ClassificationMetricsRequest(
        predictions=_texts(message.predictions),
        targets=_texts(message.targets),
        positive=message.positive if message.HasField("positive") else None,
    )


def pass_at_k_request_to_bytes(request: PassAtKRequest) -> bytes:
    """Encode a request for pass@k."""
    tensors = {name: _tensor(getattr(request, name), name) for name in ("samples", "successes")}
    with sendable("k"):
        return pb.ComputePassAtKRequest(**tensors, k=request.k).SerializeToString()


def pass_at_k_request_from_bytes(data: bytes) -> PassAtKRequest:
    """Decode a request for pass@k."""
    message = request_parsed(pb.ComputePassAtKRequest, data)
    return PassAtKRequest(
        samples=_integers(message, "samples", "samples"),
        successes=_integers(message, "successes", "successes"),
        k=tuple(message.k),
    )


def _texts(repeated: Sequence[str]) -> list[str]:
    """Texts in parts, so that other threads can run between them."""
    texts: list[str] = []
    for at in range(0, len(repeated), _TEXTS_AT_ONCE):
        texts += repeated[at : at + _TEXTS_AT_ONCE]
    return texts


def _tensor(value: Any, field: str) -> types_pb2.Tensor:
    return array_to_v1(as_array(value, field=field))


def _vector(message: Any, name: str, field: str) -> np.ndarray:
    if not message.HasField(name):
        raise InvalidField(field, "is not given")
    return vector_from_v1(getattr(message, name), field)


def _integers(message: Any, name: str, field: str) -> np.ndarray:
    vector = _vector(message, name, field)
    if vector.dtype.kind not in "iu":
        raise InvalidField(field, f"holds {vector.dtype}, integers are needed")
    return vector


def _flags(message: types_pb2.Tensor, field: str) -> np.ndarray:
    vector = vector_from_v1(message, field)
    if vector.dtype.kind != "b":
        raise InvalidField(field, f"holds {vector.dtype}, bool is needed")
    return vector


def _map_from_v1(
    messages: Mapping[str, types_pb2.Tensor], field: str, decode: Callable[[types_pb2.Tensor, str], np.ndarray]
) -> dict[str, np.ndarray]:
    return {key: decode(message, entry(field, key)) for key, message in sorted(messages.items())}
