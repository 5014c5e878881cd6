"""MetricsService over the wire: what comes back, what is undefined, what is told afterwards."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.events import EventKind
from crucible_bridge.types import Datum, Dtype, Tensor, TrajectoryBatch
from crucible_worker.metrics.kl import kl_sample_train
from crucible_worker.rpc.offload import LARGE_BYTES
from crucible_worker.testing import RunningWorker, ScriptedModel, record_events, run_worker
from tests.service.evaluation_kit import log_of
from tests.tables import rows

pytestmark = pytest.mark.core

CALLS = 9
"""Calls of the service."""


@pytest.fixture
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker with a scripted model, `embedded:m`."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        yield worker


@pytest.fixture
def metrics(worker: RunningWorker) -> Any:
    """Its metrics."""
    return worker.bridge.metrics


def datum(**inputs: Any) -> Datum:
    """Three tokens, of which two count."""
    defaults = {"logprobs": np.array([-1.0, -2.0, -4.0], np.float32), "mask": [0, 1, 1]}
    return Datum(model_input=[1, 2, 3], loss_fn_inputs={**defaults, **inputs})


def batch(**columns: Any) -> TrajectoryBatch:
    """Two groups, of two trajectories and one, each of one turn."""
    defaults: dict[str, Any] = {
        "trajectories_per_group": np.array([2, 1], np.int32),
        "transitions_per_trajectory": np.ones(3, np.int32),
        "action_tokens": np.array([3, 4, 5], np.int32),
        "observation_tokens": np.array([7, 7, 7], np.int32),
        "rewards": np.array([1.0, 0.0, 1.0]),
        "final_rewards": np.zeros(3),
    }
    return TrajectoryBatch(**{**defaults, **columns})


async def call_everything(bridge: Bridge) -> dict[str, Any]:
    """What every call of the service answers, by its name."""
    metrics, data = bridge.metrics, [datum(advantages=np.zeros(3))]
    return {
        "ComputeKLSampleTrain": await metrics.compute_kl_sample_train(data, [[0.0, -1.0, -2.0]]),
        "ComputeKLPostUpdate": await metrics.compute_kl_post_update(data, [[0.0, -1.0, -2.0]]),
        "IncorporateKLPenalty": await metrics.incorporate_kl_penalty(data, [[0.0, -1.0, -2.0]], coef=1.0),
        "ComputeMeanNLL": await metrics.compute_mean_nll([[-1.0, -3.0]], [[1.0, 1.0]]),
        "ComputeTrajectoryMetrics": await metrics.compute_trajectory_metrics(batch()),
        "ComputeDPOMetrics": await metrics.compute_dpo_metrics([-1.0], [-2.0], [-1.0], [-1.0], beta=0.1),
        "ComputeSamplingClientMetrics": await metrics.compute_sampling_client_metrics([3, 5], [0.5, 1.5]),
        "ComputeClassificationMetrics": await metrics.compute_classification_metrics(["a", "b"], ["a", "a"]),
        "ComputePassAtK": await metrics.compute_pass_at_k([2, 2], [1, 2], [1]),
    }


def values(answer: Any) -> dict[str, float]:
    """The numbers of an answer."""
    return getattr(answer, "metrics", answer).values


async def test_every_call_answers(worker: RunningWorker):
    """Each call of the service gives its metrics under the originals' keys."""
    answers = {name: values(answer) for name, answer in (await call_everything(worker.bridge)).items()}

    assert len(answers) == CALLS
    assert answers["ComputeKLSampleTrain"] == {
        "optim/kl_sample_train_v1": -1.5,
        "optim/kl_sample_train_v2": 1.25,
        "optim/entropy": 3.0,
    }
    assert answers["ComputeKLPostUpdate"] == {"kl_pre_post_v1": -1.5, "kl_pre_post_v2": 1.25}
    assert answers["IncorporateKLPenalty"] == {"kl_policy_base": -1.5}
    assert answers["ComputeMeanNLL"] == {"nll": 2.0, "perplexity": pytest.approx(np.exp(2.0))}
    assert answers["ComputeTrajectoryMetrics"]["env/all/total_ac_tokens"] == 12
    assert answers["ComputeDPOMetrics"]["accuracy"] == 1.0
    assert answers["ComputeSamplingClientMetrics"]["sampling_client/step_mean"] == 4.0
    assert answers["ComputeClassificationMetrics"]["accuracy"] == 0.5
    assert answers["ComputePassAtK"] == {"pass@1": 0.75}


async def test_counts_and_totals_come_with_the_metrics(metrics: Any):
    """Action tokens, the weight and the per-sequence values are part of the answer."""
    kl = await metrics.compute_kl_sample_train([datum(), datum()], [[0.0, 0.0, 0.0]] * 2, extended=True)
    nll = await metrics.compute_mean_nll([[-1.0, -3.0]], [[0.5, 1.0]])

    assert kl.action_tokens == 4
    assert kl.per_sequence["optim/entropy"].tolist() == [3.0, 3.0]
    assert nll.total_weight == 1.5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
async def test_advantages_keep_their_dtype_and_shape(metrics: Any, dtype: str):
    """New advantages are of the old ones' dtype, and those given are as they were."""
    given = np.array([1.0, 2.0, 3.0], dtype)

    answer = await metrics.incorporate_kl_penalty([datum(advantages=given)], [[0.0, -1.0, -2.0]], coef=1.0)

    assert answer.advantages[0].dtype == np.dtype(dtype)
    assert answer.advantages[0].tolist() == [1.0, 1.5, 3.5]
    assert given.tolist() == [1.0, 2.0, 3.0]


async def test_bfloat16_advantages_come_back_as_such(metrics: Any):
    """Numpy has no bfloat16, so it stays a tensor, rounded to the nearest value."""
    halves = np.array([0x3F80, 0x4000, 0x4040], "<u2")  # 1, 2, 3
    given = Tensor(dtype=Dtype.BF16, shape=(3,), data=halves.tobytes())

    answer = await metrics.incorporate_kl_penalty([datum(advantages=given)], [[0.0, -1.0, -2.0]], coef=1.0)

    (tensor,) = answer.advantages
    assert (tensor.dtype, tensor.shape) == (Dtype.BF16, (3,))
    assert np.frombuffer(tensor.data, "<u2").tolist() == [0x3F80, 0x3FC0, 0x4060]  # 1, 1.5, 3.5


async def test_a_large_call_is_answered_as_a_small_one(metrics: Any):
    """What a thread computes is what the function gives."""
    rng = np.random.default_rng(7)
    logprobs, training = -rng.random((32, 2048), np.float32), -rng.random((32, 2048), np.float32)
    masks = rng.random((32, 2048)) > 0.5
    data = [datum(logprobs=row, mask=mask) for row, mask in zip(logprobs, masks)]
    assert logprobs.nbytes > LARGE_BYTES

    answer = await metrics.compute_kl_sample_train(data, list(training))

    expected = kl_sample_train(list(logprobs), list(training), list(masks))
    assert dict(answer.metrics.values) == dict(sorted(expected.metrics.values.items()))
    assert answer.action_tokens == expected.action_tokens == masks.sum()


@rows(
    ("mask", "counted"),
    [([0, 1, 1], 2), ([0.0, 0.5, -1.0], 1), (np.array([False, True, True]), 2), (np.array([0, 255, 1], np.uint8), 2)],
)
async def test_a_token_counts_where_its_mask_is_above_zero(metrics: Any, mask: Any, counted: int):
    """Whatever the dtype of the mask."""
    answer = await metrics.compute_kl_sample_train([datum(mask=mask)], [[0.0, 0.0, 0.0]])

    assert answer.action_tokens == counted


async def test_data_of_tinkers_shape_are_taken(metrics: Any):
    """A datum is what has `model_input` and `loss_fn_inputs`, with values that tell their arrays."""

    def tensor(*numbers: float) -> Any:
        return types.SimpleNamespace(to_numpy=lambda: np.array(numbers, np.float32))

    foreign = types.SimpleNamespace(
        model_input=types.SimpleNamespace(to_ints=lambda: [1, 2, 3]),
        loss_fn_inputs={
            "logprobs": tensor(-1, -2, -4),
            "mask": tensor(0, 1, 1),
            "target_tokens": types.SimpleNamespace(to_numpy=lambda: np.array([2, 3, 4])),
        },
    )

    given = await metrics.compute_kl_post_update([foreign], [[0.0, -1.0, -2.0]])
    asked = await metrics.compute_kl_post_update([foreign], "embedded:m")
    same = await metrics.compute_kl_post_update([datum(target_tokens=[2, 3, 4])], "embedded:m")

    assert given.metrics.values["kl_pre_post_v1"] == -1.5
    assert asked == same


async def test_what_has_no_value_is_undefined_with_its_reason(metrics: Any):
    """An average over nothing, or over NaN, is neither zero nor an error."""
    masked = await metrics.compute_kl_sample_train([datum(mask=[0, 0, 0])], [[0.0, 0.0, 0.0]])
    nan = await metrics.compute_kl_post_update([datum()], [[0.0, np.nan, 0.0]])
    penalty = await metrics.incorporate_kl_penalty(
        [datum(mask=[0, 0, 0], advantages=np.ones(3))], [[0.0, 0.0, 0.0]], coef=1.0
    )
    nll = await metrics.compute_mean_nll([[-1.0]], [[0.0]])

    assert set(masked.metrics.undefined.values()) == {"no action tokens"}
    assert (dict(masked.metrics.values), masked.action_tokens) == ({}, 0)
    assert "1 of 2 log-probabilities is NaN" in nan.metrics.undefined["kl_pre_post_v1"]
    assert (penalty.advantages, penalty.metrics.undefined) == ((), {"kl_policy_base": "no action tokens"})
    assert set(nll.metrics.undefined) == {"nll", "perplexity"}


async def test_nan_under_a_zero_mask_changes_nothing(metrics: Any):
    """Only tokens that count are looked at."""
    odd = datum(logprobs=np.array([np.nan, -2.0, -4.0], np.float32))

    answer = await metrics.compute_kl_sample_train([odd], [[np.inf, -1.0, -2.0]])

    assert answer.metrics.values["optim/kl_sample_train_v1"] == -1.5


async def test_each_call_is_told_of(worker: RunningWorker):
    """METRICS_COMPUTED names the call, its tokens and how long it took, and belongs to no evaluation."""
    async with record_events(worker.bridge) as recorder:
        names = list(await call_everything(worker.bridge))
        await recorder.wait_for(lambda event: event.metadata.get("call") == names[-1])

    assert [event.metadata["call"] for event in recorder.events] == names
    assert {event.kind for event in recorder.events} == {EventKind.METRICS_COMPUTED}
    assert {event.evaluation_id for event in recorder.events} == {""}
    tokens = {event.metadata["call"]: event.measurements["tokens"] for event in recorder.events}
    assert (tokens["ComputeKLSampleTrain"], tokens["ComputeMeanNLL"], tokens["ComputeTrajectoryMetrics"]) == (3, 2, 33)
    assert all(event.duration_ns > 0 and event.unix_time_ns > 0 for event in recorder.events)


async def test_what_was_computed_is_told_before_the_worker_is_gone(tmp_path: Any):
    """A drain writes the events that wait."""
    async with run_worker({}, state_dir=tmp_path) as worker:
        await worker.bridge.metrics.compute_mean_nll([[-1.0]], [[1.0]])
    async with run_worker({}, state_dir=tmp_path) as worker:
        events = await log_of(worker.bridge)

    assert [event.metadata["call"] for event in events] == ["ComputeMeanNLL"]


async def test_a_call_that_fails_is_not_told_of(worker: RunningWorker):
    """Nothing was computed."""
    with pytest.raises(Exception, match="is empty"):
        await worker.bridge.metrics.compute_mean_nll([], [])
    await worker.bridge.metrics.compute_mean_nll([[-1.0]], [[1.0]])

    async with record_events(worker.bridge) as recorder:
        await recorder.wait_for(lambda event: event.kind is EventKind.METRICS_COMPUTED)

    assert len(recorder.events) == 1


async def test_calls_run_side_by_side(metrics: Any):
    """Answers are not mixed up."""
    weights = [float(number) for number in range(1, 33)]

    answers = await asyncio.gather(*(metrics.compute_mean_nll([[-1.0]], [[weight]]) for weight in weights))

    assert [answer.total_weight for answer in answers] == weights
