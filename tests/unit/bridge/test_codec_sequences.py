"""How sequences of a metrics call lie in its bytes: in place, end to end or one by one, in parts that are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crucible_bridge.codec import metric_results as results
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.codec.fields import SLICE
from crucible_bridge.codec.generated import token_sequence_from_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Dtype,
    KLPenalty,
    KLPostUpdateRequest,
    KLSampleTrainRequest,
    MeanNLLRequest,
    Metrics,
    ModelRef,
    Ragged,
    Tensor,
)
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import rendering_pb2, types_pb2
from tests.tables import rows


def test_sequences_are_read_in_place():
    """Neither equal nor different lengths are copied."""
    arrays = [np.arange(size, dtype=np.float32) for size in (4, 4, 7, 0, 4)]
    data = token_codec.mean_nll_request_to_bytes(MeanNLLRequest(logprobs=arrays, weights=arrays))

    request = token_codec.mean_nll_request_from_bytes(data)

    memory = np.frombuffer(data, np.uint8)
    for array, original in zip((*request.logprobs, *request.weights), (*arrays, *arrays), strict=True):
        np.testing.assert_array_equal(array, original)
        assert not array.flags.writeable
        assert array.size == 0 or np.shares_memory(array, memory)


FITTING: dict[str, Any] = {"logprobs": [np.ones(2), np.ones(1)], "weights": [np.ones(2), np.ones(1)]}
UNFIT: dict[str, dict[str, list[Any]]] = {
    "no sequence": {"logprobs": [], "weights": []},
    "lengths that differ": {"logprobs": [np.ones(2), np.ones(2)]},
    "numbers of arrays that differ": {"logprobs": [np.ones(2)]},
    "dtypes that differ": {"logprobs": [np.ones(2), np.ones(1, np.float32)]},
    "a dtype that is widened": {"logprobs": [np.ones(2, np.float16), np.ones(1, np.float16)]},
    "two dimensions": {"logprobs": [np.ones((2, 1)), np.ones((1, 1))], "weights": [np.ones((2, 1)), np.ones((1, 1))]},
    "memory with gaps": {"logprobs": [np.ones(4)[::2], np.ones(1)]},
    "bf16": {"logprobs": [Tensor(dtype=Dtype.BF16, shape=(2,), data=bytes(4)), np.ones(1)]},
}


def test_columns_that_fit_are_sent_end_to_end():
    """One tensor a column, and the lengths."""
    message = pb.ComputeMeanNLLRequest.FromString(token_codec.mean_nll_request_to_bytes(MeanNLLRequest(**FITTING)))

    assert set(message.columns.values) == {"logprobs", "weights"}
    assert not message.logprobs
    assert not message.weights


@rows("change", UNFIT.values(), ids=UNFIT)
def test_columns_that_do_not_fit_are_sent_one_by_one(change: dict[str, list[Any]]):
    """Then the worker says what is wrong with which tensor, or widens it."""
    columns = {**FITTING, **change}

    message = pb.ComputeMeanNLLRequest.FromString(token_codec.mean_nll_request_to_bytes(MeanNLLRequest(**columns)))

    assert not message.HasField("columns")
    assert (len(message.logprobs), len(message.weights)) == (len(columns["logprobs"]), len(columns["weights"]))


def test_advantages_in_one_are_parted_by_the_lengths_of_the_data():
    """What columns were asked for comes back as one array a datum; other lengths are refused."""
    values = np.arange(3.0)
    sent = KLPenalty(metrics=Metrics.of({}), advantages=Ragged(values, np.array([1, 0, 2])))
    data = results.kl_penalty_to_bytes(sent)

    assert [array.tolist() for array in results.penalty_of([1, 0, 2], data).advantages] == [[0.0], [], [1.0, 2.0]]
    assert [array.tolist() for array in results.penalty_of([3], data).advantages] == [[0.0, 1.0, 2.0]]
    with pytest.raises(InvalidField, match="advantages"):
        results.penalty_of([1, 1], data)


def test_what_repeats_in_a_map_is_what_comes_last():
    """As protobuf has it, whatever the order of fields."""
    first, last = (
        KLSampleTrainRequest(logprobs=[np.array([x])], masks=[np.array([x])], training_logprobs=[]) for x in (1.0, 2.0)
    )
    data = [
        pb.ComputeKLSampleTrainRequest.FromString(token_codec.kl_sample_train_request_to_bytes(x))
        for x in (first, last)
    ]
    merged = pb.ComputeKLSampleTrainRequest()
    merged.data.add().ParseFromString(b"".join(message.data[0].SerializeToString() for message in data))

    request = token_codec.kl_sample_train_request_from_bytes(merged.SerializeToString())

    assert request.logprobs[0].tolist() == [2.0]


def test_a_source_in_two_parts_is_put_together():
    """Parts of one message may come apart; protobuf merges them, and so is it here."""
    # Lengths that differ: equal ones would be sent as columns.
    request = KLPostUpdateRequest(logprobs=[np.ones(1)], masks=[np.ones(2)], updated=[np.array([1.0])])
    whole = token_codec.kl_post_update_request_to_bytes(request)
    second = pb.ComputeKLPostUpdateRequest()
    second.updated.given.tensors.add().CopyFrom(
        pb.ComputeKLPostUpdateRequest.FromString(whole).updated.given.tensors[0]
    )

    decoded = token_codec.kl_post_update_request_from_bytes(whole + second.SerializeToString())

    assert not isinstance(decoded.updated, ModelRef)
    assert [array.tolist() for array in decoded.updated] == [[1.0], [1.0]]


@pytest.mark.parametrize("packed", [b"\x12\x02\x01\x02", b"\x12\x01\x01\x12\x01\x02", b"\x12\x01\x02\x12\x01\x01"])
def test_a_shape_in_parts_is_read_whole(packed: bytes):
    """Protobuf joins the parts of a packed field: two numbers are two dimensions, wherever they are parted."""
    values = np.zeros(2, np.float32).tobytes()
    tensor = b"\x08\x07" + packed + b"\x1a" + bytes([len(values)]) + values
    assert types_pb2.Tensor.FromString(tensor).dtype == types_pb2.DTYPE_F32
    number = pb.ComputeMeanNLLRequest.LOGPROBS_FIELD_NUMBER << 3 | 2

    with pytest.raises(InvalidField, match="one dimension is needed"):
        token_codec.mean_nll_request_from_bytes(bytes([number, len(tensor)]) + tensor)


@pytest.mark.parametrize("count", [0, SLICE, SLICE + 1, 3 * SLICE + 7])
def test_all_numbers_of_a_field_are_read_in_order(count: int):
    """Also those of a large one, which is read in parts."""
    given = np.arange(count) % 50_000
    message = rendering_pb2.TokenSequence(tokens=given)
    assert np.array_equal(token_sequence_from_v1(message).tokens, given)
