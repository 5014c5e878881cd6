"""Requests of metrics calls over tokens <-> their bytes; those over samples are in `codec.metrics`.

Bytes and not messages: 64 MiB of tensors are written with one copy and read as views, see `codec.bulk`. Decoding checks
only the structure: what is missing, malformed, or of an impossible dtype. The function that computes checks whether
lengths fit each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.codec.bulk import Encoder, inputs_at, tensors_at
from crucible_bridge.codec.columns import add_columns, columns_at
from crucible_bridge.codec.content import model_input_from_v1, model_input_to_v1
from crucible_bridge.codec.elements import request_parsed
from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, plainly, split
from crucible_bridge.codec.fields import at_least, made, sendable
from crucible_bridge.codec.generated import model_ref_from_v1, model_ref_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Array,
    Datum,
    KLPenaltyRequest,
    KLPostUpdateRequest,
    KLSampleTrainRequest,
    LogprobSource,
    MeanNLLRequest,
    ModelRef,
    Ragged,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import types_pb2

__all__ = [
    "kl_penalty_request_from_bytes",
    "kl_penalty_request_to_bytes",
    "kl_post_update_request_from_bytes",
    "kl_post_update_request_to_bytes",
    "kl_sample_train_request_from_bytes",
    "kl_sample_train_request_to_bytes",
    "mean_nll_request_from_bytes",
    "mean_nll_request_to_bytes",
]

_LOGPROBS, _MASK, _ADVANTAGES, _TARGETS = "logprobs", "mask", "advantages", "target_tokens"
_TRAINING, _UPDATED, _BASE, _WEIGHTS = "training_logprobs", "updated_logprobs", "base_logprobs", "weights"
_DATUM = 1
"""The field of the data, in every request."""


def kl_sample_train_request_to_bytes(request: KLSampleTrainRequest) -> bytes:
    """Encode a request for the KL of sampling and training policy."""
    pieces, fields = Encoder(), pb.ComputeKLSampleTrainRequest
    data = {_LOGPROBS: request.logprobs, _MASK: request.masks}
    if not add_columns(pieces, fields.COLUMNS_FIELD_NUMBER, {**data, _TRAINING: request.training_logprobs}):
        _add_data(pieces, data)
        pieces.add_tensors(fields.TRAINING_LOGPROBS_FIELD_NUMBER, request.training_logprobs)
    return pieces.joined(pb.ComputeKLSampleTrainRequest(extended=request.extended))


def kl_sample_train_request_from_bytes(data: bytes) -> KLSampleTrainRequest:
    """Decode a request for the KL of sampling and training policy; its arrays are views of the bytes."""
    return plainly(pb.ComputeKLSampleTrainRequest, data, _kl_sample_train_request, parse=request_parsed)


def _kl_sample_train_request(data: bytes) -> KLSampleTrainRequest:
    fields = pb.ComputeKLSampleTrainRequest
    number, columns = fields.TRAINING_LOGPROBS_FIELD_NUMBER, fields.COLUMNS_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, number, columns))
    if spans[columns]:
        logprobs, masks, training = _columns_at(data, spans, columns, (_LOGPROBS, _MASK, _TRAINING))
    else:
        logprobs, masks = inputs_at(data, spans[_DATUM], (_LOGPROBS, _MASK))
        training = tensors_at(data, spans[number], "training_logprobs")
    return KLSampleTrainRequest(
        logprobs=logprobs, masks=masks, training_logprobs=training, extended=request_parsed(fields, rest).extended
    )


def kl_post_update_request_to_bytes(request: KLPostUpdateRequest) -> bytes:
    """Encode a request for the KL of a policy before and after an update."""
    pieces, fields = Encoder(), pb.ComputeKLPostUpdateRequest
    data = {_LOGPROBS: request.logprobs, _MASK: request.masks}
    if not _add_given(pieces, fields.COLUMNS_FIELD_NUMBER, data, _UPDATED, request.updated):
        _add_data(pieces, data, request.data)
        _add_source(pieces, fields.UPDATED_FIELD_NUMBER, request.updated)
    return pieces.joined(made(pb.ComputeKLPostUpdateRequest, "", deadline_ms=request.deadline_ms))


def kl_post_update_request_from_bytes(data: bytes) -> KLPostUpdateRequest:
    """Decode a request for the KL of a policy before and after an update; its arrays are views of the bytes."""
    return plainly(pb.ComputeKLPostUpdateRequest, data, _kl_post_update_request, parse=request_parsed)


def _kl_post_update_request(data: bytes) -> KLPostUpdateRequest:
    fields = pb.ComputeKLPostUpdateRequest
    source, columns = fields.UPDATED_FIELD_NUMBER, fields.COLUMNS_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, source, columns))
    message = request_parsed(fields, rest)
    updated: LogprobSource
    if spans[columns]:
        logprobs, masks, updated = _columns_at(data, spans, columns, (_LOGPROBS, _MASK, _UPDATED))
    else:
        logprobs, masks = inputs_at(data, spans[_DATUM], (_LOGPROBS, _MASK))
        updated = _source_at(data, spans[source], "updated")
    return KLPostUpdateRequest(
        logprobs=logprobs,
        masks=masks,
        updated=updated,
        data=_sequences_at(data, spans[_DATUM]) if isinstance(updated, ModelRef) else (),
        deadline_ms=_deadline_from_v1(message),
    )


def kl_penalty_request_to_bytes(request: KLPenaltyRequest) -> bytes:
    """Encode a request for advantages with a KL penalty."""
    pieces, fields = Encoder(), pb.IncorporateKLPenaltyRequest
    data = {_LOGPROBS: request.logprobs, _MASK: request.masks, _ADVANTAGES: request.advantages}
    if not _add_given(pieces, fields.COLUMNS_FIELD_NUMBER, data, _BASE, request.base):
        _add_data(pieces, data, request.data)
        _add_source(pieces, fields.BASE_FIELD_NUMBER, request.base)
    rest = made(
        pb.IncorporateKLPenaltyRequest,
        "",
        kl_penalty_coef=request.coef,
        kl_discount_factor=request.discount,
        deadline_ms=request.deadline_ms,
        reverse_kl=request.reverse_kl,
        datasets=request.datasets,
    )
    return pieces.joined(rest)


def kl_penalty_request_from_bytes(data: bytes) -> KLPenaltyRequest:
    """Decode a request for advantages with a KL penalty; its arrays are views of the bytes."""
    return plainly(pb.IncorporateKLPenaltyRequest, data, _kl_penalty_request, parse=request_parsed)


def _kl_penalty_request(data: bytes) -> KLPenaltyRequest:
    fields, keys = pb.IncorporateKLPenaltyRequest, (_LOGPROBS, _MASK, _ADVANTAGES)
    source, columns = fields.BASE_FIELD_NUMBER, fields.COLUMNS_FIELD_NUMBER
    spans, rest = split(data, (0, len(data)), (_DATUM, source, columns))
    message = request_parsed(fields, rest)
    base: LogprobSource
    if spans[columns]:
        found = _columns_at(data, spans, columns, (*keys, _BASE), stored=(_ADVANTAGES,))
        logprobs, masks, advantages, base = found
    else:
        logprobs, masks, advantages = inputs_at(data, spans[_DATUM], keys, stored=(_ADVANTAGES,))
        base = _source_at(data, spans[source], "base")
    return KLPenaltyRequest(
        logprobs=logprobs,
        masks=masks,
        advantages=advantages,
        base=base,
        coef=message.kl_penalty_coef,
        discount=message.kl_discount_factor,
        data=_sequences_at(data, spans[_DATUM]) if isinstance(base, ModelRef) else (),
        deadline_ms=_deadline_from_v1(message),
        reverse_kl=message.reverse_kl,
        datasets=tuple(message.datasets),
    )


def mean_nll_request_to_bytes(request: MeanNLLRequest) -> bytes:
    """Encode a request for a mean NLL."""
    pieces, fields = Encoder(), pb.ComputeMeanNLLRequest
    columns = {_LOGPROBS: request.logprobs, _WEIGHTS: request.weights}
    if not add_columns(pieces, fields.COLUMNS_FIELD_NUMBER, columns):
        pieces.add_tensors(fields.LOGPROBS_FIELD_NUMBER, request.logprobs)
        pieces.add_tensors(fields.WEIGHTS_FIELD_NUMBER, request.weights)
    return pieces.joined(fields())


def mean_nll_request_from_bytes(data: bytes) -> MeanNLLRequest:
    """Decode a request for a mean NLL; its arrays are views of the bytes."""
    return plainly(pb.ComputeMeanNLLRequest, data, _mean_nll_request, parse=request_parsed)


def _mean_nll_request(data: bytes) -> MeanNLLRequest:
    fields = pb.ComputeMeanNLLRequest
    numbers = (fields.LOGPROBS_FIELD_NUMBER, fields.WEIGHTS_FIELD_NUMBER, fields.COLUMNS_FIELD_NUMBER)
    spans, _ = split(data, (0, len(data)), numbers)
    if spans[fields.COLUMNS_FIELD_NUMBER]:
        logprobs, weights = _columns_at(data, spans, fields.COLUMNS_FIELD_NUMBER, (_LOGPROBS, _WEIGHTS))
    else:
        logprobs = tensors_at(data, spans[fields.LOGPROBS_FIELD_NUMBER], "logprobs")
        weights = tensors_at(data, spans[fields.WEIGHTS_FIELD_NUMBER], "weights")
    return MeanNLLRequest(logprobs=logprobs, weights=weights)


def _add_data(pieces: Encoder, columns: Mapping[str, Sequence[Array]], sequences: Sequence[Datum] = ()) -> None:
    """Add the data: the columns of each datum and, if a model is to be queried, its tokens."""
    number = types_pb2.Datum.LOSS_FN_INPUTS_FIELD_NUMBER
    for index, row in enumerate(zip(*columns.values())):
        datum = Encoder()
        if sequences:
            tokens = model_input_to_v1(sequences[index].model_input).SerializeToString()
            datum.add_bytes(types_pb2.Datum.MODEL_INPUT_FIELD_NUMBER, tokens)
            datum.add_entry(number, _TARGETS, sequences[index].loss_fn_inputs[_TARGETS])
        for key, array in zip(columns, row):
            datum.add_entry(number, key, array)
        pieces.add_encoded(_DATUM, datum)


def _add_given(
    pieces: Encoder, number: int, data: Mapping[str, Sequence[Array]], key: str, source: LogprobSource
) -> bool:
    """Add data and a policy's log-probabilities as columns, if possible."""
    if isinstance(source, ModelRef):
        return False
    return add_columns(pieces, number, {**data, key: source})


def _columns_at(
    data: bytes,
    spans: Mapping[int, Sequence[FieldRange]],
    number: int,
    keys: Sequence[str],
    *,
    stored: Sequence[str] = (),
) -> list[Ragged]:
    if any(found for other, found in spans.items() if other != number):
        raise InvalidField("columns", "is given together with the fields that it replaces")
    return columns_at(data, spans[number], keys, stored=stored)


def _add_source(pieces: Encoder, number: int, source: LogprobSource) -> None:
    message = Encoder()
    if isinstance(source, ModelRef):
        with sendable("model"):
            model = model_ref_to_v1(source).SerializeToString()
        message.add_bytes(pb.LogprobSource.MODEL_FIELD_NUMBER, model)
    else:
        tensors = Encoder()
        tensors.add_tensors(pb.TensorList.TENSORS_FIELD_NUMBER, source)
        message.add_encoded(pb.LogprobSource.GIVEN_FIELD_NUMBER, tensors)
    pieces.add_encoded(number, message)


def _source_at(data: bytes, spans: Sequence[FieldRange], field: str) -> LogprobSource:
    if len(spans) > 1:
        raise NeedsFallback  # the parts of one message
    given, tensors = pb.LogprobSource.GIVEN_FIELD_NUMBER, pb.TensorList.TENSORS_FIELD_NUMBER
    found, rest = split(data, spans[0] if spans else (0, 0), (given,))
    message = request_parsed(pb.LogprobSource, rest)
    match found[given], message.WhichOneof("source"):
        case [], "model":
            return model_ref_from_v1(message.model, f"{field}.model")
        case [], _:
            raise InvalidField(field, "holds neither log-probabilities nor a model")
        case [span], None:
            lists, _ = split(data, span, (tensors,))
            return tensors_at(data, lists[tensors], f"{field}.given.tensors")
        case _:
            raise NeedsFallback  # of several, the last one counts


def _sequences_at(data: bytes, spans: Sequence[FieldRange]) -> tuple[Datum, ...]:
    """The tokens of the data, to query a model with."""
    (targets,) = inputs_at(data, spans, (_TARGETS,))
    number = types_pb2.Datum.MODEL_INPUT_FIELD_NUMBER
    sequences: list[Datum] = []
    for index, (span, tokens) in enumerate(zip(spans, targets)):
        found, _ = split(data, span, (number,))
        message = request_parsed(types_pb2.ModelInput, b"".join(data[slice(*part)] for part in found[number]))
        model_input = model_input_from_v1(message, f"data[{index}].model_input")
        sequences.append(Datum(model_input=model_input, loss_fn_inputs={_TARGETS: tokens}))
    return tuple(sequences)


def _deadline_from_v1(message: Any) -> int | None:
    if not message.HasField("deadline_ms"):
        return None
    at_least(message.deadline_ms, 1, "deadline_ms")
    return message.deadline_ms
