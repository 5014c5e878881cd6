"""Requests that are wrong in their structure: INVALID_ARGUMENT with the path of the field, row by row.

They are written by the generated stub, as any other client would write them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import numpy as np
import pytest

from crucible_bridge.channel import channel_options
from crucible_bridge.codec import array_to_v1
from crucible_bridge.errors import Code, InvalidField
from crucible_bridge.types import Datum
from crucible_bridge.v1 import metrics_pb2_grpc, types_pb2
from crucible_worker.rpc.offload import LARGE_BYTES
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.service.metrics_kit import CALLS, COLUMNS, asked, post, put, tensor
from tests.service.server_kit import error_of
from tests.service.test_metrics_calls import batch
from tests.tables import rows

F32 = types_pb2.DTYPE_F32


@pytest.fixture
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker with a scripted model, `embedded:m`."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        yield worker


@pytest.fixture
async def stub(worker: RunningWorker) -> AsyncIterator[Any]:
    """Its metrics, by the generated stub."""
    async with grpc.aio.insecure_channel(worker.address, options=channel_options()) as channel:
        yield metrics_pb2_grpc.MetricsServiceStub(channel)


def inputs(message: Any, index: int = 1) -> Any:
    """What belongs to a datum."""
    return message.data[index].loss_fn_inputs


def at(key: str, index: int = 1) -> str:
    """The path of that."""
    return f'data[{index}].loss_fn_inputs["{key}"]'


LONG, SHORT = tensor(-1, -1, -1), tensor(-1)
SQUARE = array_to_v1(np.zeros((2, 2), np.float32))
TORN = types_pb2.Tensor(dtype=F32, data=b"12345")
MISFIT = types_pb2.Tensor(dtype=F32, shape=[3], data=b"12345678")
NAMELESS = types_pb2.Tensor(data=b"1234")

Change = Callable[[Any], object]
WRONG: list[tuple[str, str, Change]] = [
    ("ComputeKLSampleTrain", "data", lambda m: (m.ClearField("data"), m.ClearField("training_logprobs"))),
    ("ComputeKLSampleTrain", at("logprobs"), lambda m: inputs(m).pop("logprobs")),
    ("ComputeKLSampleTrain", at("mask"), lambda m: inputs(m).pop("mask")),
    ("ComputeKLSampleTrain", at("mask", 0), lambda m: put(inputs(m, 0)["mask"], SHORT)),
    ("ComputeKLSampleTrain", at("mask"), lambda m: put(inputs(m)["mask"], SQUARE)),
    ("ComputeKLSampleTrain", at("logprobs"), lambda m: put(inputs(m)["logprobs"], TORN)),
    ("ComputeKLSampleTrain", at("logprobs"), lambda m: put(inputs(m)["logprobs"], MISFIT)),
    ("ComputeKLSampleTrain", at("logprobs") + ".dtype", lambda m: put(inputs(m)["logprobs"], NAMELESS)),
    ("ComputeKLSampleTrain", "training_logprobs[1]", lambda m: put(m.training_logprobs[1], LONG)),
    ("ComputeKLSampleTrain", "training_logprobs[0]", lambda m: put(m.training_logprobs[0], TORN)),
    ("ComputeKLSampleTrain", "training_logprobs", lambda m: m.training_logprobs.pop()),
    ("ComputeKLPostUpdate", "data", lambda m: (m.ClearField("data"), m.updated.given.ClearField("tensors"))),
    ("ComputeKLPostUpdate", "updated", lambda m: m.ClearField("updated")),
    ("ComputeKLPostUpdate", "updated.model", lambda m: m.updated.model.SetInParent()),
    ("ComputeKLPostUpdate", "updated.model.embedded", lambda m: setattr(m.updated.model, "embedded", "")),
    ("ComputeKLPostUpdate", "updated.given.tensors", lambda m: m.updated.given.tensors.pop()),
    ("ComputeKLPostUpdate", "updated.given.tensors[1]", lambda m: put(m.updated.given.tensors[1], LONG)),
    ("ComputeKLPostUpdate", "deadline_ms", lambda m: setattr(m, "deadline_ms", 0)),
    ("ComputeKLPostUpdate", at("logprobs"), lambda m: inputs(m).pop("logprobs")),
    ("IncorporateKLPenalty", "data", lambda m: (m.ClearField("data"), m.base.given.ClearField("tensors"))),
    ("IncorporateKLPenalty", "base", lambda m: m.ClearField("base")),
    ("IncorporateKLPenalty", "base.given.tensors[0]", lambda m: put(m.base.given.tensors[0], SHORT)),
    ("IncorporateKLPenalty", at("advantages"), lambda m: inputs(m).pop("advantages")),
    ("IncorporateKLPenalty", at("advantages"), lambda m: put(inputs(m)["advantages"], SHORT)),
    ("IncorporateKLPenalty", at("advantages"), lambda m: put(inputs(m)["advantages"], SQUARE)),
    ("IncorporateKLPenalty", at("advantages"), lambda m: put(inputs(m)["advantages"], tensor(1, 2, dtype="i4"))),
    ("IncorporateKLPenalty", at("mask"), lambda m: inputs(m).pop("mask")),
    ("IncorporateKLPenalty", "kl_penalty_coef", lambda m: setattr(m, "kl_penalty_coef", float("nan"))),
    ("IncorporateKLPenalty", "kl_discount_factor", lambda m: setattr(m, "kl_discount_factor", -0.5)),
    ("IncorporateKLPenalty", "deadline_ms", lambda m: setattr(m, "deadline_ms", -1)),
    ("ComputeMeanNLL", "logprobs", lambda m: (m.ClearField("logprobs"), m.ClearField("weights"))),
    ("ComputeMeanNLL", "weights", lambda m: m.weights.pop()),
    ("ComputeMeanNLL", "weights[0]", lambda m: put(m.weights[0], LONG)),
    ("ComputeMeanNLL", "logprobs[0]", lambda m: put(m.logprobs[0], SQUARE)),
    ("ComputeTrajectoryMetrics", "batch.rewards", lambda m: m.batch.ClearField("rewards")),
    ("ComputeTrajectoryMetrics", "batch.final_rewards", lambda m: m.batch.ClearField("final_rewards")),
    ("ComputeTrajectoryMetrics", "batch.rewards", lambda m: put(m.batch.rewards, LONG)),
    ("ComputeTrajectoryMetrics", "batch.action_tokens", lambda m: put(m.batch.action_tokens, tensor(3, 3))),
    ("ComputeTrajectoryMetrics", "batch.tags", lambda m: m.batch.tags.pop()),
    ("ComputeTrajectoryMetrics", 'batch.transition_metrics["m"]', lambda m: put(m.batch.transition_metrics["m"], LONG)),
    ("ComputeTrajectoryMetrics", 'batch.trajectory_metrics["t"]', lambda m: put(m.batch.trajectory_metrics["t"], TORN)),
    (
        "ComputeTrajectoryMetrics",
        'batch.transition_metric_present["m"]',
        lambda m: put(m.batch.transition_metric_present["m"], tensor(1, 0)),
    ),
    ("ComputeDPOMetrics", "rejected_logprobs", lambda m: m.ClearField("rejected_logprobs")),
    ("ComputeDPOMetrics", "rejected_reference_logprobs", lambda m: put(m.rejected_reference_logprobs, LONG)),
    ("ComputeDPOMetrics", "dpo_beta", lambda m: setattr(m, "dpo_beta", 0.0)),
    ("ComputeSamplingClientMetrics", "sampling_client_steps", lambda m: put(m.sampling_client_steps, tensor(1, 2))),
    ("ComputeSamplingClientMetrics", "sampling_seconds", lambda m: m.ClearField("sampling_seconds")),
    ("ComputeSamplingClientMetrics", "sampling_seconds", lambda m: put(m.sampling_seconds, LONG)),
    ("ComputeClassificationMetrics", "targets", lambda m: (m.ClearField("predictions"), m.ClearField("targets"))),
    ("ComputeClassificationMetrics", "predictions", lambda m: m.targets.pop()),
    ("ComputePassAtK", "k", lambda m: m.ClearField("k")),
    ("ComputePassAtK", "k[0]", lambda m: m.k.__setitem__(0, 0)),
    ("ComputePassAtK", "successes", lambda m: put(m.successes, tensor(0, 1))),
    ("ComputePassAtK", "successes[1]", lambda m: put(m.successes, tensor(0, 3, dtype="i4"))),
]


async def test_requests_that_are_right_are_answered(stub: Any):
    """What the rows below change is accepted as it is, so that they show the change and nothing else."""
    for call, request in CALLS.items():
        await getattr(stub, call)(request())
    await stub.ComputeKLPostUpdate(asked())


@rows(("call", "field", "change"), WRONG, ids=[f"{row[0]}:{row[1]}" for row in WRONG])
async def test_the_wrong_field_is_named(stub: Any, call: str, field: str, change: Change):
    """One wrong field is INVALID_ARGUMENT with its path, which the message begins with."""
    request = CALLS[call]()
    change(request)

    error = await error_of(getattr(stub, call)(request))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)
    assert str(error).startswith(field)


WRONG_COLUMNS: list[tuple[str, Change]] = [
    ("columns.lengths", lambda m: m.columns.ClearField("lengths")),
    ("columns.lengths", lambda m: put(m.columns.lengths, tensor(2, 1))),
    ("columns.lengths", lambda m: put(m.columns.lengths, tensor(4, -1, dtype="i8"))),
    ("columns.lengths", lambda m: put(m.columns.lengths, tensor(dtype="i4"))),
    ("columns.lengths", lambda m: put(m.columns.lengths, TORN)),
    ('columns.values["logprobs"]', lambda m: put(m.columns.lengths, tensor(2, 2, dtype="i8"))),
    ('columns.values["logprobs"]', lambda m: put(m.columns.lengths, tensor(2**62, 2**62, 3, dtype="i8"))),
    ('columns.values["logprobs"]', lambda m: put(m.columns.values["logprobs"], tensor(-1))),
    ('columns.values["logprobs"]', lambda m: put(m.columns.values["logprobs"], SQUARE)),
    ('columns.values["logprobs"]', lambda m: put(m.columns.values["logprobs"], TORN)),
    ('columns.values["logprobs"]', lambda m: m.columns.values.pop("logprobs")),
]


@rows("call", COLUMNS)
async def test_columns_are_answered(stub: Any, call: str):
    """Sequences end to end are as good as data; both at once are not."""
    request, both = COLUMNS[call](), CALLS[call]()
    both.columns.CopyFrom(request.columns)

    await getattr(stub, call)(request)
    error = await error_of(getattr(stub, call)(both))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, "columns")


@rows("call", COLUMNS)
@rows(("field", "change"), WRONG_COLUMNS)
async def test_the_wrong_column_is_named(stub: Any, call: str, field: str, change: Change):
    """One wrong column, or lengths that are none, are INVALID_ARGUMENT with the path."""
    request = COLUMNS[call]()
    change(request)

    error = await error_of(getattr(stub, call)(request))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)


async def test_bfloat16_columns_are_answered_by_such(stub: Any):
    """Advantages come back as they came, one tensor; other columns are widened."""
    request = COLUMNS["IncorporateKLPenalty"]()
    halves = {
        "advantages": [0x3F80, 0x4000, 0x4040],  # 1, 2, 3
        "logprobs": [0xBF80, 0xC000, 0xC080],  # -1, -2, -4
        "base_logprobs": [0, 0xBF80, 0xC000],  # 0, -1, -2
        "mask": [0, 0x3F80, 0x3F80],  # 0, 1, 1
    }
    for key, bits in halves.items():
        content = np.array(bits, "<u2").tobytes()
        put(request.columns.values[key], types_pb2.Tensor(dtype=types_pb2.DTYPE_BF16, data=content))

    answer = await stub.IncorporateKLPenalty(request)

    (found,) = answer.advantages
    assert found.dtype == types_pb2.DTYPE_BF16
    assert np.frombuffer(found.data, "<u2").tolist() == [0x3F80, 0x3FC0, 0x4060]  # 1, 1.5, 3.5
    assert answer.metrics.values == {"kl_policy_base": -1.5}


@rows("mask", ["f2", "f8", "i4", "i8", "u1", "?"])
@rows("logprobs", ["f2", "f8", "i4"])
async def test_columns_of_any_numbers_are_computed_with(stub: Any, logprobs: str, mask: str):
    """The same answer, whatever holds the same numbers."""
    request = COLUMNS["ComputeKLSampleTrain"]()
    put(request.columns.values["logprobs"], tensor(-1, -2, -4, dtype=logprobs))
    put(request.columns.values["training_logprobs"], tensor(0, -1, -2, dtype=logprobs))
    put(request.columns.values["mask"], tensor(0, 1, 1, dtype=mask))

    answer = await stub.ComputeKLSampleTrain(request)

    assert answer.metrics.values["optim/kl_sample_train_v1"] == -1.5
    assert (answer.metrics.values["optim/entropy"], answer.action_tokens) == (3.0, 2)


@rows("dtype", ["i4", "i8", "u1", "?"])
async def test_advantages_that_are_no_floats_name_their_column(stub: Any, dtype: str):
    """Integers and bools take no penalty."""
    request = COLUMNS["IncorporateKLPenalty"]()
    put(request.columns.values["advantages"], tensor(1, 0, 1, dtype=dtype))

    error = await error_of(stub.IncorporateKLPenalty(request))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, 'columns.values["advantages"]')


async def test_lengths_of_another_type_are_told_those_that_do(stub: Any):
    """An u8 is an integer, but cannot hold a length."""
    request = COLUMNS["ComputeMeanNLL"]()
    put(request.columns.lengths, tensor(2, 1, dtype="u1"))

    error = await error_of(stub.ComputeMeanNLL(request))

    assert str(error) == "columns.lengths holds uint8, i32 or i64 is needed"


TOKENS: list[tuple[str, Change]] = [
    (at("target_tokens"), lambda m: inputs(m).pop("target_tokens")),
    (at("target_tokens"), lambda m: put(inputs(m)["target_tokens"], tensor(2, 3))),
    (at("target_tokens"), lambda m: put(inputs(m)["target_tokens"], tensor(2, 3, 4, dtype="i8"))),
    (at("target_tokens", 0), lambda m: put(inputs(m, 0)["target_tokens"], tensor(9, 3, dtype="i8"))),
    ("data[1].model_input.chunks[0]", lambda m: m.data[1].model_input.chunks[0].image.CopyFrom(png())),
    (at("target_tokens"), lambda m: m.data[1].ClearField("model_input")),
]


def png() -> types_pb2.ImageChunk:
    """A piece of input that is no token."""
    return types_pb2.ImageChunk(data=b"png", format="png")


@rows(("field", "change"), TOKENS)
async def test_tokens_are_checked_where_a_model_is_asked(stub: Any, field: str, change: Change):
    """Targets must be the input moved by one token; where log-probabilities are given, nobody looks at them."""
    request, without = asked(), post()
    change(request)
    change(without)

    error = await error_of(stub.ComputeKLPostUpdate(request))

    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)
    await stub.ComputeKLPostUpdate(without)


@rows("call", CALLS)
@rows("size", [7, LARGE_BYTES])
async def test_bytes_that_are_no_message_are_the_callers_error(worker: RunningWorker, call: str, size: int):
    """On the event loop or in a thread."""
    async with grpc.aio.insecure_channel(worker.address) as channel:
        method = channel.unary_unary(f"/crucible_bridge.v1.MetricsService/{call}", None, None)
        error = await error_of(method(b"\xff" * size))

    assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MALFORMED_MESSAGE")


HERE: list[tuple[str, Callable[[Any], Any]]] = [
    ("data[0]", lambda m: m.compute_kl_sample_train([7], [[1.0]])),
    (at("logprobs", 0), lambda m: m.compute_kl_sample_train([Datum(model_input=[1], loss_fn_inputs={})], [[1.0]])),
    ("training_logprobs[1]", lambda m: m.compute_kl_sample_train([], [[1.0], ["x"]])),
    ("logprobs[0]", lambda m: m.compute_mean_nll([np.zeros(1, np.complex64)], [[1.0]])),
    ("model", lambda m: m.compute_kl_post_update([], "m")),
    ("deadline_ms", lambda m: m.compute_kl_post_update([], [], deadline_ms=2**70)),
    ("batch.rewards", lambda m: m.compute_trajectory_metrics(batch(rewards=[[1.0], [1.0, 2.0]]))),
    ("chosen_logprobs", lambda m: m.compute_dpo_metrics([["x"]], [1.0], [1.0], [1.0], beta=1.0)),
    ("k", lambda m: m.compute_pass_at_k([1], [1], [2**40])),
    ("predictions", lambda m: m.compute_classification_metrics([1], ["a"])),
]


@rows(("field", "call"), HERE, ids=[row[0] for row in HERE])
async def test_what_cannot_be_sent_is_refused_before(worker: RunningWorker, field: str, call: Callable[[Any], Any]):
    """The client names the field as the worker would."""
    with pytest.raises(InvalidField) as caught:
        await call(worker.bridge.metrics)

    assert caught.value.field == field
