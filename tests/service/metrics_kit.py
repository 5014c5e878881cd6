"""Requests of every metrics call that are right, written as any other client would write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crucible_bridge.codec import array_to_v1
from crucible_bridge.v1 import metrics_pb2 as pb
from crucible_bridge.v1 import types_pb2


def tensor(*numbers: float, dtype: str = "f4") -> types_pb2.Tensor:
    """A vector."""
    return array_to_v1(np.array(numbers, dtype))


def datum() -> types_pb2.Datum:
    """Two tokens with everything that a call may read."""
    tokens = types_pb2.ModelInputChunk(tokens=tensor(1, 2, dtype="i8"))
    inputs = {"logprobs": tensor(-1, -2), "mask": tensor(1, 1), "advantages": tensor(0, 0)}
    return types_pb2.Datum(
        model_input=types_pb2.ModelInput(chunks=[tokens]),
        loss_fn_inputs={**inputs, "target_tokens": tensor(2, 3, dtype="i8")},
    )


def given() -> pb.LogprobSource:
    """Log-probabilities of two data."""
    return pb.LogprobSource(given=pb.TensorList(tensors=[tensor(-1, -1), tensor(-1, -1)]))


def kl() -> pb.ComputeKLSampleTrainRequest:
    """A request that is right."""
    return pb.ComputeKLSampleTrainRequest(data=[datum(), datum()], training_logprobs=[tensor(-1, -1), tensor(-1, -1)])


def post() -> pb.ComputeKLPostUpdateRequest:
    """A request that is right."""
    return pb.ComputeKLPostUpdateRequest(data=[datum(), datum()], updated=given())


def asked() -> pb.ComputeKLPostUpdateRequest:
    """A request that is right, and asks a model."""
    return pb.ComputeKLPostUpdateRequest(data=[datum(), datum()], updated=a_model())


def a_model() -> pb.LogprobSource:
    """A model to ask."""
    return pb.LogprobSource(model=types_pb2.ModelRef(embedded="m"))


def penalty() -> pb.IncorporateKLPenaltyRequest:
    """A request that is right."""
    return pb.IncorporateKLPenaltyRequest(data=[datum(), datum()], base=given(), kl_penalty_coef=1.0)


def nll() -> pb.ComputeMeanNLLRequest:
    """A request that is right."""
    return pb.ComputeMeanNLLRequest(logprobs=[tensor(-1, -2)], weights=[tensor(1, 1)])


def trajectories() -> pb.ComputeTrajectoryMetricsRequest:
    """A request that is right: two groups of a trajectory with a turn each."""
    batch = pb.TrajectoryBatch(
        trajectories_per_group=tensor(1, 1, dtype="i4"),
        transitions_per_trajectory=tensor(1, 1, dtype="i4"),
        action_tokens=tensor(3, 3, dtype="i4"),
        observation_tokens=tensor(3, 3, dtype="i4"),
        rewards=tensor(1, 0),
        final_rewards=tensor(0, 0),
        transition_metrics={"m": tensor(1, 2)},
        transition_metric_present={"m": tensor(1, 0, dtype="?")},
        trajectory_metrics={"t": tensor(1, 2)},
        tags=[pb.Tags(tags=["a"]), pb.Tags(tags=["b"])],
    )
    return pb.ComputeTrajectoryMetricsRequest(batch=batch)


def dpo() -> pb.ComputeDPOMetricsRequest:
    """A request that is right."""
    names = ("chosen_logprobs", "rejected_logprobs", "chosen_reference_logprobs", "rejected_reference_logprobs")
    columns: dict[str, Any] = {name: tensor(-1, -2) for name in names}
    return pb.ComputeDPOMetricsRequest(**columns, dpo_beta=0.1)


def sampling() -> pb.ComputeSamplingClientMetricsRequest:
    """A request that is right."""
    return pb.ComputeSamplingClientMetricsRequest(
        sampling_client_steps=tensor(1, 2, dtype="i8"), sampling_seconds=tensor(0.5, 1.5)
    )


def labels() -> pb.ComputeClassificationMetricsRequest:
    """A request that is right."""
    return pb.ComputeClassificationMetricsRequest(predictions=["a", "b"], targets=["a", "a"])


def pass_at_k() -> pb.ComputePassAtKRequest:
    """A request that is right."""
    return pb.ComputePassAtKRequest(samples=tensor(2, 2, dtype="i4"), successes=tensor(0, 1, dtype="i4"), k=[1])


def columns(*names: str) -> types_pb2.Columns:
    """Two sequences end to end, of two tokens and of one."""
    return types_pb2.Columns(lengths=tensor(2, 1, dtype="i8"), values={name: tensor(-1, -2, -3) for name in names})


COLUMNS: dict[str, Callable[[], Any]] = {
    "ComputeKLSampleTrain": lambda: pb.ComputeKLSampleTrainRequest(
        columns=columns("logprobs", "mask", "training_logprobs")
    ),
    "ComputeKLPostUpdate": lambda: pb.ComputeKLPostUpdateRequest(
        columns=columns("logprobs", "mask", "updated_logprobs")
    ),
    "IncorporateKLPenalty": lambda: pb.IncorporateKLPenaltyRequest(
        columns=columns("logprobs", "mask", "advantages", "base_logprobs"), kl_penalty_coef=1.0
    ),
    "ComputeMeanNLL": lambda: pb.ComputeMeanNLLRequest(columns=columns("logprobs", "weights")),
}

CALLS: dict[str, Callable[[], Any]] = {
    "ComputeKLSampleTrain": kl,
    "ComputeKLPostUpdate": post,
    "IncorporateKLPenalty": penalty,
    "ComputeMeanNLL": nll,
    "ComputeTrajectoryMetrics": trajectories,
    "ComputeDPOMetrics": dpo,
    "ComputeSamplingClientMetrics": sampling,
    "ComputeClassificationMetrics": labels,
    "ComputePassAtK": pass_at_k,
}


def put(target: Any, value: types_pb2.Tensor) -> None:
    """Replace a tensor."""
    target.CopyFrom(value)
