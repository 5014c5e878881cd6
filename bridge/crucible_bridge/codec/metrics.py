"""What metrics calls are asked <-> the bytes of their requests; `codec.metric_results` has the answers.

Bytes and not messages: 64 MiB of tensors are written with one copy and read as views, see `codec.bulk`. Decoding checks
structure alone: what is missing, malformed, or of a dtype that cannot be meant. Whether lengths fit each other is for
the function to see that computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import as_array
from crucible_bridge.codec.bulk import Pieces, inputs_at, tensors_at, vector_from_v1
from crucible_bridge.codec.data import array_to_v1, model_input_from_v1, model_input_to_v1
from crucible_bridge.codec.fields import at_least, entry, sendable
from crucible_bridge.codec.models import model_ref_from_v1, model_ref_to_v1
from crucible_bridge.codec.spans import Span, Unusual, parsed, plainly, split
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Array,
    ClassificationMetricsRequest,
    Datum,
    DPOMetricsRequest,
    EmbeddedModel,
    KLPenaltyRequest,
    KLPostUpdateRequest,
    KLSampleTrainRequest,
    LocalModel,
    LogprobSource,
    MeanNLLRequest,
    PassAtKRequest,
    SamplingClientMetricsRequest,
    TrajectoryBatch,
    TrajectoryMetricsRequest,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "classification_metrics_request_from_bytes",
    "classification_metrics_request_to_bytes",
    "dpo_metrics_request_from_bytes",
    "dpo_metrics_request_to_bytes",
    "kl_penalty_request_from_bytes",
    "kl_penalty_request_to_bytes",
    "kl_post_update_request_from_bytes",
    "kl_post_update_request_to_bytes",
    "kl_sample_train_request_from_bytes",
    "kl_sample_train_request_to_bytes",
    "mean_nll_request_from_bytes",
    "mean_nll_request_to_bytes",
    "pass_at_k_request_from_bytes",
    "pass_at_k_request_to_bytes",
    "sampling_client_metrics_request_from_bytes",
    "sampling_client_metrics_request_to_bytes",
    "trajectory_metrics_request_from_bytes",
    "trajectory_metrics_request_to_bytes",
]

_LOGPROBS, _MASK, _ADVANTAGES, _TARGETS = "logprobs", "mask", "advantages", "target_tokens"
_DATUM = 1
"""The field of the data, in every request."""
_COUNTS = ("trajectories_per_group", "transitions_per_trajectory", "action_tokens", "observation_tokens")
_REWARDS = ("rewards", "final_rewards")
_METRICS = ("transition_metrics", "trajectory_metrics")
_PRESENT = ("transition_metric_present", "trajectory_metric_present")
_DPO = {
    "chosen_logprobs": "chosen",
    "rejected_logprobs": "rejected",
    "chosen_reference_logprobs": "chosen_reference",
    "rejected_reference_logprobs": "rejected_reference",
}


def kl_sample_train_request_to_bytes(request: KLSampleTrainRequest) -> bytes:
    """Encode a question for the KL of sampling and training policy."""
    pieces = Pieces()
    _add_data(pieces, {_LOGPROBS: request.logprobs, _MASK: request.masks})
    pieces.add_tensors(pb.ComputeKLSampleTrainRequest.TRAINING_LOGPROBS_FIELD_NUMBER, request.training_logprobs)
    return pieces.joined(pb.ComputeKLSampleTrainRequest(extended=request.extended))


def kl_sample_train_request_from_bytes(data: bytes) -> KLSampleTrainRequest:
    """Decode a question for the KL of sampling and training policy; its arrays are views of the bytes."""
    return plainly(pb.ComputeKLSampleTrainRequest, data, _kl_sample_train_request)


def _kl_sample_train_request(data: bytes) -> KLSampleTrainRequest:
    training = pb.ComputeKLSampleTrainRequest.TRAINING_LOGPROBS_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, training))
    logprobs, masks = inputs_at(data, spans[_DATUM], (_LOGPROBS, _MASK), "data")
    return KLSampleTrainRequest(
        logprobs=logprobs,
        masks=masks,
        training_logprobs=tensors_at(data, spans[training], "training_logprobs"),
        extended=parsed(pb.ComputeKLSampleTrainRequest, rest).extended,
    )


def kl_post_update_request_to_bytes(request: KLPostUpdateRequest) -> bytes:
    """Encode a question for the KL of a policy before and after an update."""
    pieces = Pieces()
    _add_data(pieces, {_LOGPROBS: request.logprobs, _MASK: request.masks}, request.data)
    _add_source(pieces, pb.ComputeKLPostUpdateRequest.UPDATED_FIELD_NUMBER, request.updated)
    with sendable("deadline_ms"):
        return pieces.joined(pb.ComputeKLPostUpdateRequest(deadline_ms=request.deadline_ms))


def kl_post_update_request_from_bytes(data: bytes) -> KLPostUpdateRequest:
    """Decode a question for the KL of a policy before and after an update; its arrays are views of the bytes."""
    return plainly(pb.ComputeKLPostUpdateRequest, data, _kl_post_update_request)


def _kl_post_update_request(data: bytes) -> KLPostUpdateRequest:
    source = pb.ComputeKLPostUpdateRequest.UPDATED_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, source))
    message = parsed(pb.ComputeKLPostUpdateRequest, rest)
    logprobs, masks = inputs_at(data, spans[_DATUM], (_LOGPROBS, _MASK), "data")
    updated = _source_at(data, spans[source], "updated")
    return KLPostUpdateRequest(
        logprobs=logprobs,
        masks=masks,
        updated=updated,
        data=_sequences_at(data, spans[_DATUM]) if isinstance(updated, EmbeddedModel | LocalModel) else (),
        deadline_ms=_deadline_from_v1(message),
    )


def kl_penalty_request_to_bytes(request: KLPenaltyRequest) -> bytes:
    """Encode a question for advantages with a KL penalty."""
    columns = {_LOGPROBS: request.logprobs, _MASK: request.masks, _ADVANTAGES: request.advantages}
    pieces = Pieces()
    _add_data(pieces, columns, request.data)
    _add_source(pieces, pb.IncorporateKLPenaltyRequest.BASE_FIELD_NUMBER, request.base)
    with sendable("kl_penalty_coef, kl_discount_factor or deadline_ms"):
        rest = pb.IncorporateKLPenaltyRequest(
            kl_penalty_coef=request.coef, kl_discount_factor=request.discount, deadline_ms=request.deadline_ms
        )
    return pieces.joined(rest)


def kl_penalty_request_from_bytes(data: bytes) -> KLPenaltyRequest:
    """Decode a question for advantages with a KL penalty; its arrays are views of the bytes."""
    return plainly(pb.IncorporateKLPenaltyRequest, data, _kl_penalty_request)


def _kl_penalty_request(data: bytes) -> KLPenaltyRequest:
    source = pb.IncorporateKLPenaltyRequest.BASE_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, source))
    message = parsed(pb.IncorporateKLPenaltyRequest, rest)
    keys = (_LOGPROBS, _MASK, _ADVANTAGES)
    logprobs, masks, advantages = inputs_at(data, spans[_DATUM], keys, "data", stored=(_ADVANTAGES,))
    base = _source_at(data, spans[source], "base")
    return KLPenaltyRequest(
        logprobs=logprobs,
        masks=masks,
        advantages=advantages,
        base=base,
        coef=message.kl_penalty_coef,
        discount=message.kl_discount_factor,
        data=_sequences_at(data, spans[_DATUM]) if isinstance(base, EmbeddedModel | LocalModel) else (),
        deadline_ms=_deadline_from_v1(message),
    )


def mean_nll_request_to_bytes(request: MeanNLLRequest) -> bytes:
    """Encode a question for a mean NLL."""
    pieces = Pieces()
    pieces.add_tensors(pb.ComputeMeanNLLRequest.LOGPROBS_FIELD_NUMBER, request.logprobs)
    pieces.add_tensors(pb.ComputeMeanNLLRequest.WEIGHTS_FIELD_NUMBER, request.weights)
    return pieces.joined(pb.ComputeMeanNLLRequest())


def mean_nll_request_from_bytes(data: bytes) -> MeanNLLRequest:
    """Decode a question for a mean NLL; its arrays are views of the bytes."""
    return plainly(pb.ComputeMeanNLLRequest, data, _mean_nll_request)


def _mean_nll_request(data: bytes) -> MeanNLLRequest:
    logprobs, weights = (
        pb.ComputeMeanNLLRequest.LOGPROBS_FIELD_NUMBER,
        pb.ComputeMeanNLLRequest.WEIGHTS_FIELD_NUMBER,
    )
    spans, _ = split(data, (0, len(data)), (logprobs, weights))
    return MeanNLLRequest(
        logprobs=tensors_at(data, spans[logprobs], "logprobs"), weights=tensors_at(data, spans[weights], "weights")
    )


def trajectory_metrics_request_to_bytes(request: TrajectoryMetricsRequest) -> bytes:
    """Encode a question for a summary of trajectories."""
    batch, fields = request.batch, pb.TrajectoryBatch.DESCRIPTOR.fields_by_name
    columns = Pieces()
    for name in (*_COUNTS, *_REWARDS):
        columns.add_tensors(fields[name].number, [as_array(getattr(batch, name), field=f"batch.{name}")])
    for name in (*_METRICS, *_PRESENT):
        for key, array in getattr(batch, name).items():
            path = entry(f"batch.{name}", key)
            with sendable(path):
                columns.add_entry(fields[name].number, key, as_array(array, field=path))
    with sendable("batch.tags or good_threshold"):
        rest = pb.ComputeTrajectoryMetricsRequest(
            batch=pb.TrajectoryBatch(tags=[pb.Tags(tags=tags) for tags in batch.tags]),
            good_threshold=request.good_threshold,
        )
    pieces = Pieces()
    pieces.add_pieces(pb.ComputeTrajectoryMetricsRequest.BATCH_FIELD_NUMBER, columns)
    # The batch in two parts, which a parser puts together: the columns, and the tags.
    return pieces.joined(rest)


def trajectory_metrics_request_from_bytes(data: bytes) -> TrajectoryMetricsRequest:
    """Decode a question for a summary of trajectories."""
    message = parsed(pb.ComputeTrajectoryMetricsRequest, data)
    batch = message.batch
    columns: dict[str, Any] = {name: _integers(batch, name, f"batch.{name}") for name in _COUNTS}
    columns |= {name: _vector(batch, name, f"batch.{name}") for name in _REWARDS}
    columns |= {name: _map_from_v1(getattr(batch, name), f"batch.{name}", vector_from_v1) for name in _METRICS}
    columns |= {name: _map_from_v1(getattr(batch, name), f"batch.{name}", _flags) for name in _PRESENT}
    return TrajectoryMetricsRequest(
        batch=TrajectoryBatch(**columns, tags=tuple(tuple(tags.tags) for tags in batch.tags)),
        good_threshold=message.good_threshold if message.HasField("good_threshold") else None,
    )


def dpo_metrics_request_to_bytes(request: DPOMetricsRequest) -> bytes:
    """Encode a question about preference pairs."""
    tensors = {name: _tensor(getattr(request, ours), name) for name, ours in _DPO.items()}
    with sendable("dpo_beta"):
        return pb.ComputeDPOMetricsRequest(**tensors, dpo_beta=request.beta).SerializeToString()


def dpo_metrics_request_from_bytes(data: bytes) -> DPOMetricsRequest:
    """Decode a question about preference pairs."""
    message = parsed(pb.ComputeDPOMetricsRequest, data)
    columns = {ours: _vector(message, name, name) for name, ours in _DPO.items()}
    return DPOMetricsRequest(**columns, beta=message.dpo_beta)


def sampling_client_metrics_request_to_bytes(request: SamplingClientMetricsRequest) -> bytes:
    """Encode a question about steps and times of sampling."""
    return pb.ComputeSamplingClientMetricsRequest(
        sampling_client_steps=_tensor(request.steps, "sampling_client_steps"),
        sampling_seconds=_tensor(request.seconds, "sampling_seconds"),
    ).SerializeToString()


def sampling_client_metrics_request_from_bytes(data: bytes) -> SamplingClientMetricsRequest:
    """Decode a question about steps and times of sampling."""
    message = parsed(pb.ComputeSamplingClientMetricsRequest, data)
    return SamplingClientMetricsRequest(
        steps=_integers(message, "sampling_client_steps", "sampling_client_steps"),
        seconds=_vector(message, "sampling_seconds", "sampling_seconds"),
    )


def classification_metrics_request_to_bytes(request: ClassificationMetricsRequest) -> bytes:
    """Encode a question about labels."""
    with sendable("predictions, targets or positive"):
        return pb.ComputeClassificationMetricsRequest(
            predictions=request.predictions, targets=request.targets, positive=request.positive
        ).SerializeToString()


def classification_metrics_request_from_bytes(data: bytes) -> ClassificationMetricsRequest:
    """Decode a question about labels."""
    message = parsed(pb.ComputeClassificationMetricsRequest, data)
    return ClassificationMetricsRequest(
        predictions=tuple(message.predictions),
        targets=tuple(message.targets),
        positive=message.positive if message.HasField("positive") else None,
    )


def pass_at_k_request_to_bytes(request: PassAtKRequest) -> bytes:
    """Encode a question for pass@k."""
    tensors = {name: _tensor(getattr(request, name), name) for name in ("samples", "successes")}
    with sendable("k"):
        return pb.ComputePassAtKRequest(**tensors, k=request.k).SerializeToString()


def pass_at_k_request_from_bytes(data: bytes) -> PassAtKRequest:
    """Decode a question for pass@k."""
    message = parsed(pb.ComputePassAtKRequest, data)
    return PassAtKRequest(
        samples=_integers(message, "samples", "samples"),
        successes=_integers(message, "successes", "successes"),
        k=tuple(message.k),
    )


def _add_data(pieces: Pieces, columns: Mapping[str, Sequence[Array]], sequences: Sequence[Datum] = ()) -> None:
    """Add the data: of each the columns, and where a model is to be asked, its tokens."""
    number = types_pb2.Datum.LOSS_FN_INPUTS_FIELD_NUMBER
    for index, row in enumerate(zip(*columns.values())):
        datum = Pieces()
        if sequences:
            tokens = model_input_to_v1(sequences[index].model_input).SerializeToString()
            datum.add_bytes(types_pb2.Datum.MODEL_INPUT_FIELD_NUMBER, tokens)
            datum.add_entry(number, _TARGETS, sequences[index].loss_fn_inputs[_TARGETS])
        for key, array in zip(columns, row):
            datum.add_entry(number, key, array)
        pieces.add_pieces(_DATUM, datum)


def _add_source(pieces: Pieces, number: int, source: LogprobSource) -> None:
    message = Pieces()
    if isinstance(source, EmbeddedModel | LocalModel):
        with sendable("model"):
            model = model_ref_to_v1(source).SerializeToString()
        message.add_bytes(pb.LogprobSource.MODEL_FIELD_NUMBER, model)
    else:
        tensors = Pieces()
        tensors.add_tensors(pb.TensorList.TENSORS_FIELD_NUMBER, source)
        message.add_pieces(pb.LogprobSource.GIVEN_FIELD_NUMBER, tensors)
    pieces.add_pieces(number, message)


def _source_at(data: bytes, spans: Sequence[Span], field: str) -> LogprobSource:
    if len(spans) > 1:
        raise Unusual  # the parts of one message
    given, tensors = pb.LogprobSource.GIVEN_FIELD_NUMBER, pb.TensorList.TENSORS_FIELD_NUMBER
    found, rest = split(data, spans[0] if spans else (0, 0), (given,))
    message = parsed(pb.LogprobSource, rest)
    match found[given], message.WhichOneof("source"):
        case [], "model":
            return model_ref_from_v1(message.model, f"{field}.model")
        case [], _:
            raise InvalidField(field, "holds neither log-probabilities nor a model")
        case [span], None:
            lists, _ = split(data, span, (tensors,))
            return tensors_at(data, lists[tensors], f"{field}.given.tensors")
        case _:
            raise Unusual  # the last of several counts


def _sequences_at(data: bytes, spans: Sequence[Span]) -> tuple[Datum, ...]:
    """The tokens of the data, as a model is asked for them."""
    (targets,) = inputs_at(data, spans, (_TARGETS,), "data")
    number = types_pb2.Datum.MODEL_INPUT_FIELD_NUMBER
    sequences: list[Datum] = []
    for index, (span, tokens) in enumerate(zip(spans, targets)):
        found, _ = split(data, span, (number,))
        message = parsed(types_pb2.ModelInput, b"".join(data[slice(*part)] for part in found[number]))
        model_input = model_input_from_v1(message, f"data[{index}].model_input")
        sequences.append(Datum(model_input=model_input, loss_fn_inputs={_TARGETS: tokens}))
    return tuple(sequences)


def _deadline_from_v1(message: Any) -> int | None:
    if not message.HasField("deadline_ms"):
        return None
    at_least(message.deadline_ms, 1, "deadline_ms")
    return message.deadline_ms


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
