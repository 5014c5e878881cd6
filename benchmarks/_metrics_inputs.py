"""The calls that `metrics_remote.py` measures: the request, its pure function, and tinker-cookbook's own."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np

from crucible_bridge.client.metrics import MetricsClient
from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.types import Datum, TrajectoryBatch
from crucible_worker.metrics.kl import kl_post_update as pure_kl_post
from crucible_worker.metrics.kl import kl_sample_train as pure_kl
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll as pure_nll
from crucible_worker.metrics.trajectory import trajectory_metrics

__all__ = ["LIMIT_SEQUENCES", "TOKENS", "Case", "at_the_limit", "cases", "kl_sample_train"]

SEQUENCES, TOKENS = 512, 2_048
"""A large batch."""
LIMIT_SEQUENCES = 3_600
"""Sequences of 2,048 tokens with two f32 and one byte each: 66.4 of 67.1 MB."""
GROUPS, TRAJECTORIES, TURNS = 256, 16, 4
PENALTY_SEQUENCES = 32
"""The original takes 10 ms for each."""
COEF, DISCOUNT = 0.1, 0.99


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One call, and its baselines."""

    name: str
    ours: Callable[[MetricsClient], Awaitable[Any]]
    pure: Callable[[bytes], Callable[[], Any]]
    """The pure function, on arrays decoded from the request's bytes."""
    original: Callable[[], Callable[[], Any]] | None = None
    """Makes a call of tinker-cookbook, ready to be timed."""
    claim: str = ""
    """How many times faster than that it must be."""


def cases() -> Iterator[Case]:
    """All large calls."""
    originals = _originals()
    yield kl_sample_train(SEQUENCES, TOKENS, originals)
    yield _kl_post_update(originals)
    yield _mean_nll(originals)
    yield _kl_penalty(originals)
    yield _trajectories(originals)


def at_the_limit() -> tuple[list[Datum], list[np.ndarray]]:
    """Data and training log-probabilities of a request just below 64 MiB."""
    columns = {"logprobs": _logprobs(LIMIT_SEQUENCES, TOKENS), "mask": _masks(LIMIT_SEQUENCES, TOKENS)}
    return _data(columns, None), _logprobs(LIMIT_SEQUENCES, TOKENS)


def kl_sample_train(sequences: int, tokens: int, originals: Any = None) -> Case:
    """ComputeKLSampleTrain: from tinker's Datums if it is installed, otherwise from ours."""
    columns = {"logprobs": _logprobs(sequences, tokens), "mask": _masks(sequences, tokens)}
    training = _logprobs(sequences, tokens)
    data = _data(columns, originals)
    given, original = training, None
    if originals is not None:
        import torch

        given = [torch.from_numpy(array) for array in training]
        original = _call(originals.compute_kl_sample_train, data, given)

    def pure(request: bytes) -> Callable[[], Any]:
        asked = token_codec.kl_sample_train_request_from_bytes(request)
        return lambda: pure_kl(asked.logprobs, asked.training_logprobs, asked.masks)

    return Case(
        name="kl_sample_train",
        ours=lambda metrics: metrics.compute_kl_sample_train(data, given),
        pure=pure,
        original=original,
        claim="goal: at least 1, aim 1.5",
    )


def _kl_post_update(originals: Any) -> Case:
    columns = {"logprobs": _logprobs(SEQUENCES, TOKENS), "mask": _masks(SEQUENCES, TOKENS)}
    data, updated = _data(columns, originals), _logprobs(SEQUENCES, TOKENS)

    def pure(request: bytes) -> Callable[[], Any]:
        asked = token_codec.kl_post_update_request_from_bytes(request)
        return lambda: pure_kl_post(asked.logprobs, asked.updated, asked.masks)  # type: ignore[arg-type]

    return Case(
        name="kl_post_update",
        ours=lambda metrics: metrics.compute_kl_post_update(data, updated),
        pure=pure,
        claim="the original queries a model",
    )


def _mean_nll(originals: Any) -> Case:
    logprobs, weights = _logprobs(SEQUENCES, TOKENS), _masks(SEQUENCES, TOKENS)
    given, weighed, original = logprobs, weights, None
    if originals is not None:
        import tinker

        given = [tinker.TensorData.from_numpy(array) for array in logprobs]
        weighed = [tinker.TensorData.from_numpy(array) for array in weights]
        original = _call(originals.compute_mean_nll, given, weighed)

    def pure(request: bytes) -> Callable[[], Any]:
        asked = token_codec.mean_nll_request_from_bytes(request)
        return lambda: pure_nll(asked.logprobs, asked.weights)

    return Case(
        name="mean_nll",
        ours=lambda metrics: metrics.compute_mean_nll(given, weighed),
        pure=pure,
        original=original,
        claim="no claim: it only computes for 3 ms",
    )


def _kl_penalty(originals: Any) -> Case:
    sequences = PENALTY_SEQUENCES
    columns = {
        "logprobs": _logprobs(sequences, TOKENS),
        "mask": _masks(sequences, TOKENS),
        "advantages": _logprobs(sequences, TOKENS),
        "target_tokens": [np.arange(TOKENS)] * sequences,
    }
    base = _logprobs(sequences, TOKENS)
    data = _data(columns, originals)

    def original() -> Any:
        from _originals import SamplingClient

        # The original writes the advantages into the data.
        spoiled = _data(columns, originals)
        client = SamplingClient([array.tolist() for array in base])
        return lambda: originals.incorporate_kl_penalty(spoiled, client, COEF, DISCOUNT)

    def pure(request: bytes) -> Callable[[], Any]:
        asked = token_codec.kl_penalty_request_from_bytes(request)
        columns = (asked.logprobs, asked.base, asked.masks, asked.advantages)
        return lambda: incorporate_kl_penalty(*columns, coef=COEF, discount=DISCOUNT)  # type: ignore[arg-type]

    return Case(
        name="kl_penalty",
        ours=lambda metrics: metrics.incorporate_kl_penalty(data, base, coef=COEF, discount=DISCOUNT),
        pure=pure,
        original=None if originals is None else original,
        claim="goal: at least 20",
    )


def _trajectories(originals: Any) -> Case:
    groups, tags = _groups(originals)
    batch = TrajectoryBatch.of(groups, tags)

    def pure(request: bytes) -> Callable[[], Any]:
        asked = codec.trajectory_metrics_request_from_bytes(request).batch
        return lambda: trajectory_metrics(asked)

    return Case(
        name="trajectory_metrics",
        ours=lambda metrics: metrics.compute_trajectory_metrics(batch),
        pure=pure,
        original=None if originals is None else lambda: lambda: originals.compute_trajectory_metrics(groups, tags),
        claim="goal: at least 20",
    )


def _groups(originals: Any) -> tuple[list[Any], list[list[str]]]:
    """Trajectory groups with three metrics, and three tags, of which a group has two."""
    make = types.SimpleNamespace
    rng = np.random.default_rng(1)

    def transition() -> Any:
        tokens = [0] * int(rng.integers(1, 64))
        metrics = {key: float(rng.random()) for key in ("format", "correct", "length")}
        action = make(tokens=tokens, prompt_cache_hit_tokens=0)
        return make(
            ob=make(length=int(rng.integers(1, 256))), ac=action, reward=float(rng.random() > 0.5), metrics=metrics
        )

    def group() -> Any:
        trajectories = [make(transitions=[transition() for _ in range(TURNS)]) for _ in range(TRAJECTORIES)]
        fields = {
            "trajectories_G": trajectories,
            "final_rewards_G": [0.0] * TRAJECTORIES,
            "metrics_G": [{} for _ in range(TRAJECTORIES)],
        }
        return make(**fields) if originals is None else originals.types.TrajectoryGroup(**fields)

    names = ("gsm", "math", "code")
    return [group() for _ in range(GROUPS)], [[names[index % 3], names[(index + 1) % 3]] for index in range(GROUPS)]


def _data(columns: dict[str, list[np.ndarray]], originals: Any) -> list[Any]:
    """Data of these columns, tinker's if it is installed."""
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    if originals is None:
        tokens: Any = [0] * TOKENS
        return [Datum(model_input=tokens, loss_fn_inputs=row) for row in rows]
    import tinker

    tokens = tinker.ModelInput.from_ints([0] * TOKENS)
    return [
        tinker.Datum(
            model_input=tokens,
            loss_fn_inputs={key: tinker.TensorData.from_numpy(array) for key, array in row.items()},
        )
        for row in rows
    ]


def _logprobs(sequences: int, tokens: int) -> list[np.ndarray]:
    rng = np.random.default_rng(sequences + tokens)
    return [-rng.exponential(1.0, tokens).astype(np.float32) for _ in range(sequences)]


def _masks(sequences: int, tokens: int) -> list[np.ndarray]:
    """Two thirds of the tokens count; float32, as in tinker."""
    return [(np.arange(tokens) > tokens // 3).astype(np.float32)] * sequences


def _call(function: Callable[..., Any], *arguments: Any) -> Callable[[], Callable[[], Any]]:
    return lambda: lambda: function(*arguments)


def _originals() -> Any:
    try:
        from _originals import load_originals

        return load_originals()
    except ModuleNotFoundError:
        return None
