"""Requests and results of metrics calls: what is decoded is what was encoded, and any protobuf reads and writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge.codec import metric_results as results
from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ClassificationMetricsRequest,
    Datum,
    DPOMetricsRequest,
    Dtype,
    KLPenalty,
    KLPenaltyRequest,
    KLPostUpdate,
    KLPostUpdateRequest,
    KLSampleTrain,
    KLSampleTrainRequest,
    MeanNLL,
    MeanNLLRequest,
    PassAtKRequest,
    PreferencePair,
    SamplingClientMetricsRequest,
    Tensor,
    TrajectoryBatch,
    TrajectoryMetricsRequest,
    parse_model,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from tests.unit.bridge import strategies as some

SEQUENCES = 3


def vectors(*dtypes: str) -> st.SearchStrategy[np.ndarray]:
    """Vectors of any bits."""
    return some.bit_arrays(dtypes).map(np.ravel)


numbers = vectors("<f4", "<f8", "<i4", "<i8", "<u1", "?")
integers = vectors("<i4", "<i8")
preference_pairs = st.builds(PreferencePair, chosen=some.conversations, rejected=some.conversations)
advantages = vectors("<f2", "<f4", "<f8") | some.bfloat16s().map(
    lambda tensor: Tensor(dtype=Dtype.BF16, shape=(len(tensor.data) // 2,), data=tensor.data)
)


def column(array: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """As many arrays as there are sequences."""
    return st.lists(array, min_size=SEQUENCES, max_size=SEQUENCES)


@st.composite
def alike(draw: st.DrawFn, *names: str) -> dict[str, Any]:
    """Columns that can be sent end to end: equal lengths, one dtype each, any bits."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    dtypes = {name: np.dtype(draw(st.sampled_from(("<f4", "<f8", "<i4", "<i8", "<u1")))) for name in names}
    return {
        name: [
            np.frombuffer(draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize)), dtype)
            for size in lengths
        ]
        for name, dtype in dtypes.items()
    }


tokens = st.lists(some.i32, max_size=4).map(lambda ids: np.array(ids, np.int64))
sequences = st.lists(
    st.builds(lambda ids: Datum(model_input=ids, loss_fn_inputs={"target_tokens": ids}), tokens),
    min_size=SEQUENCES,
    max_size=SEQUENCES,
).map(tuple)
deadlines = some.optional(st.integers(1, 2**63 - 1))
sources = st.one_of(
    st.fixed_dictionaries({"source": column(numbers), "data": st.just(())}),
    st.fixed_dictionaries({"source": some.models, "data": sequences}),
)
columns = {"logprobs": column(numbers), "masks": column(numbers)}
post_updates = st.builds(
    lambda source, **fields: KLPostUpdateRequest(updated=source["source"], data=source["data"], **fields),
    source=sources,
    deadline_ms=deadlines,
    **columns,
)
penalties = st.builds(
    lambda source, **fields: KLPenaltyRequest(base=source["source"], data=source["data"], **fields),
    source=sources,
    deadline_ms=deadlines,
    advantages=column(advantages),
    coef=some.finite,
    discount=some.finite,
    **columns,
)
keyed = st.dictionaries(some.text, numbers, max_size=3)
flags = st.dictionaries(some.text, vectors("?"), max_size=3)
batches = st.builds(
    TrajectoryBatch,
    trajectories_per_group=integers,
    transitions_per_trajectory=integers,
    action_tokens=integers,
    observation_tokens=integers,
    rewards=numbers,
    final_rewards=numbers,
    transition_metrics=keyed,
    trajectory_metrics=keyed,
    tags=some.several(some.several(some.text)),
    transition_metric_present=flags,
    trajectory_metric_present=flags,
    cached_observation_tokens=some.optional(integers),
)
PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any], type[Any]]] = {
    "kl_sample_train": (
        st.builds(KLSampleTrainRequest, training_logprobs=column(numbers), extended=st.booleans(), **columns),
        token_codec.kl_sample_train_request_to_bytes,
        token_codec.kl_sample_train_request_from_bytes,
        pb.ComputeKLSampleTrainRequest,
    ),
    "kl_post_update": (
        post_updates,
        token_codec.kl_post_update_request_to_bytes,
        token_codec.kl_post_update_request_from_bytes,
        pb.ComputeKLPostUpdateRequest,
    ),
    "kl_penalty": (
        penalties,
        token_codec.kl_penalty_request_to_bytes,
        token_codec.kl_penalty_request_from_bytes,
        pb.IncorporateKLPenaltyRequest,
    ),
    "kl_sample_train_columns": (
        alike("logprobs", "masks", "training_logprobs").map(lambda columns: KLSampleTrainRequest(**columns)),
        token_codec.kl_sample_train_request_to_bytes,
        token_codec.kl_sample_train_request_from_bytes,
        pb.ComputeKLSampleTrainRequest,
    ),
    "kl_post_update_columns": (
        alike("logprobs", "masks", "updated").map(lambda columns: KLPostUpdateRequest(**columns)),
        token_codec.kl_post_update_request_to_bytes,
        token_codec.kl_post_update_request_from_bytes,
        pb.ComputeKLPostUpdateRequest,
    ),
    "kl_penalty_columns": (
        alike("logprobs", "masks", "advantages", "base").map(lambda columns: KLPenaltyRequest(**columns, coef=0.5)),
        token_codec.kl_penalty_request_to_bytes,
        token_codec.kl_penalty_request_from_bytes,
        pb.IncorporateKLPenaltyRequest,
    ),
    "mean_nll_columns": (
        alike("logprobs", "weights").map(lambda columns: MeanNLLRequest(**columns)),
        token_codec.mean_nll_request_to_bytes,
        token_codec.mean_nll_request_from_bytes,
        pb.ComputeMeanNLLRequest,
    ),
    "mean_nll": (
        st.builds(MeanNLLRequest, logprobs=column(numbers), weights=column(numbers)),
        token_codec.mean_nll_request_to_bytes,
        token_codec.mean_nll_request_from_bytes,
        pb.ComputeMeanNLLRequest,
    ),
    "trajectory_metrics": (
        st.builds(TrajectoryMetricsRequest, batch=batches, good_threshold=some.optional(some.finite)),
        codec.trajectory_metrics_request_to_bytes,
        codec.trajectory_metrics_request_from_bytes,
        pb.ComputeTrajectoryMetricsRequest,
    ),
    "dpo_metrics": (
        st.builds(
            DPOMetricsRequest,
            chosen=numbers,
            rejected=numbers,
            chosen_reference=numbers,
            rejected_reference=numbers,
            beta=some.finite,
        ),
        codec.dpo_metrics_request_to_bytes,
        codec.dpo_metrics_request_from_bytes,
        pb.ComputeDPOMetricsRequest,
    ),
    "dpo_metrics_of_models": (
        st.builds(
            DPOMetricsRequest,
            beta=some.finite,
            policy=st.just(parse_model("embedded:m")),
            reference=st.just(parse_model("local:r")),
            pairs=st.lists(preference_pairs, min_size=1, max_size=3).map(tuple),
            deadline_ms=some.optional(st.integers(1, 1_000_000)),
        ),
        codec.dpo_metrics_request_to_bytes,
        codec.dpo_metrics_request_from_bytes,
        pb.ComputeDPOMetricsRequest,
    ),
    "sampling_client_metrics": (
        st.builds(SamplingClientMetricsRequest, steps=integers, seconds=numbers),
        codec.sampling_client_metrics_request_to_bytes,
        codec.sampling_client_metrics_request_from_bytes,
        pb.ComputeSamplingClientMetricsRequest,
    ),
    "classification_metrics": (
        st.builds(
            ClassificationMetricsRequest,
            predictions=some.several(some.text),
            targets=some.several(some.text),
            positive=some.optional(some.text),
        ),
        codec.classification_metrics_request_to_bytes,
        codec.classification_metrics_request_from_bytes,
        pb.ComputeClassificationMetricsRequest,
    ),
    "pass_at_k": (
        st.builds(PassAtKRequest, samples=integers, successes=integers, k=some.several(some.i32)),
        codec.pass_at_k_request_to_bytes,
        codec.pass_at_k_request_from_bytes,
        pb.ComputePassAtKRequest,
    ),
    "kl_sample_train_result": (
        st.builds(
            KLSampleTrain,
            metrics=some.metrics,
            action_tokens=some.i64,
            per_sequence=st.dictionaries(some.text, numbers),
        ),
        results.kl_sample_train_to_bytes,
        results.kl_sample_train_from_bytes,
        pb.ComputeKLSampleTrainResponse,
    ),
    "kl_post_update_result": (
        st.builds(KLPostUpdate, metrics=some.metrics, action_tokens=some.i64),
        results.kl_post_update_to_bytes,
        results.kl_post_update_from_bytes,
        pb.ComputeKLPostUpdateResponse,
    ),
    "kl_penalty_result": (
        st.builds(KLPenalty, metrics=some.metrics, advantages=some.several(advantages)),
        results.kl_penalty_to_bytes,
        results.kl_penalty_from_bytes,
        pb.IncorporateKLPenaltyResponse,
    ),
    "mean_nll_result": (
        st.builds(MeanNLL, metrics=some.metrics, total_weight=some.finite),
        results.mean_nll_to_bytes,
        results.mean_nll_from_bytes,
        pb.ComputeMeanNLLResponse,
    ),
}


def plain(value: Any) -> Any:
    """Comparable bit by bit; lists and tuples are alike."""
    return some.plain(value)


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip is the identity, bit by bit, for our own bytes and for those that protobuf makes of them."""
    strategy, to_bytes, from_bytes, message = PAIRS[pair]
    value = values.draw(strategy)

    data = to_bytes(value)
    again = message.FromString(data).SerializeToString()

    assert plain(from_bytes(data)) == plain(value)
    assert plain(from_bytes(again)) == plain(value)


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(values=st.data())
def test_damaged_bytes_are_refused_or_read_as_protobuf_reads_them(pair: str, values: st.DataObject):
    """What protobuf reads is read the same; what it refuses is refused where it is read; no other error is raised."""
    strategy, to_bytes, from_bytes, message = PAIRS[pair]
    data = to_bytes(values.draw(strategy))
    at = values.draw(st.integers(0, len(data)))
    damaged = data[:at] + values.draw(st.binary(max_size=2)) + data[at + values.draw(st.integers(0, 2)) :]

    found, rewritten = _outcome(from_bytes, damaged), _rewritten(message, damaged)
    assert rewritten is None or found == _outcome(from_bytes, rewritten)


def _rewritten(message: Any, data: bytes) -> bytes | None:
    try:
        whole = message.FromString(data)
    except DecodeError:
        return None
    whole.DiscardUnknownFields()
    return whole.SerializeToString()


def _outcome(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return plain(decode(data))
    except InvalidField as error:
        return (error.field, error.message)
