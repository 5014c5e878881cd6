"""tinker-cookbook's own functions give the same keys and, to their float32 sums, the same numbers."""

import asyncio
import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from tests import needs

pytest.importorskip("tinker_cookbook", reason=needs.MISSING["tinker_cookbook"])
pytest.importorskip("torch", reason=needs.MISSING["torch"])

import tinker
import torch

from benchmarks._originals import SamplingClient, load_originals
from crucible_bridge.types import TrajectoryBatch
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from crucible_worker.metrics.preference import dpo_metrics
from crucible_worker.metrics.sampling_client import sampling_client_metrics
from crucible_worker.metrics.trajectory import trajectory_metrics
from tests.tables import rows

TOLERANCE = 2.0**-22
"""Of the mean absolute term: the originals sum in float32."""

SIZES = (1, 37, 1_000, 20_000, 100_000)

originals = load_originals()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    logprobs: list[np.ndarray]
    others: list[np.ndarray]
    masks: list[np.ndarray]
    advantages: list[np.ndarray]

    @property
    def data(self) -> list[tinker.Datum]:
        """Fresh, as an original may change them."""
        return [
            tinker.Datum(
                model_input=tinker.ModelInput.from_ints([1] * logprobs.size),
                loss_fn_inputs={
                    "logprobs": tinker.TensorData.from_numpy(logprobs),
                    "mask": tinker.TensorData.from_numpy(mask),
                    "advantages": tinker.TensorData.from_numpy(advantages),
                    "target_tokens": tinker.TensorData.from_numpy(np.ones(logprobs.size, np.int64)),
                },
            )
            for logprobs, mask, advantages in zip(self.logprobs, self.masks, self.advantages)
        ]

    def scale(self, values: list[np.ndarray]) -> float:
        """The mean absolute value over action tokens."""
        kept = np.concatenate([np.abs(each)[mask > 0] for each, mask in zip(values, self.masks)])
        return float(np.mean(kept, dtype=np.float64))


@pytest.fixture(params=[(size, seed) for size in SIZES for seed in (1, 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def batch(request: pytest.FixtureRequest) -> Batch:
    """Random float32 data in sequences of random lengths, the first token of each an action token."""
    size, seed = request.param
    rng = np.random.default_rng([size, seed])
    lengths: list[int] = []
    while sum(lengths) < size:
        lengths.append(int(min(rng.integers(1, 2_048), size - sum(lengths))))
    logprobs = [(-rng.exponential(1.0, length)).astype(np.float32) for length in lengths]
    masks = [(rng.random(length) < 0.6).astype(np.float32) for length in lengths]
    for mask in masks:
        mask[0] = 1
    return Batch(
        logprobs=logprobs,
        others=[array + rng.normal(0, 0.1, array.size).astype(np.float32) for array in logprobs],
        masks=masks,
        advantages=[rng.normal(0, 1, length).astype(np.float32) for length in lengths],
    )


def _terms(batch: Batch) -> list[np.ndarray]:
    return [a.astype(np.float64) - b for a, b in zip(batch.logprobs, batch.others)]


def test_kl_sample_train(batch: Batch) -> None:
    """compute_kl_sample_train: every key."""
    theirs = originals.compute_kl_sample_train(batch.data, [torch.from_numpy(each) for each in batch.others])
    ours = kl_sample_train(batch.logprobs, batch.others, batch.masks).metrics.values

    terms = _terms(batch)
    scales = (batch.scale(terms), batch.scale([0.5 * d * d for d in terms]), batch.scale(batch.logprobs))
    assert ours.keys() == theirs.keys()
    for key, scale in zip(("optim/kl_sample_train_v1", "optim/kl_sample_train_v2", "optim/entropy"), scales):
        assert abs(ours[key] - theirs[key]) <= TOLERANCE * scale


def test_kl_post_update(batch: Batch) -> None:
    """compute_post_kl: every key."""
    client = SamplingClient([each.tolist() for each in batch.others])
    theirs, _ = asyncio.run(originals.compute_post_kl(batch.data, client))
    ours = kl_post_update(batch.logprobs, batch.others, batch.masks).metrics.values

    terms = _terms(batch)
    assert ours.keys() == theirs.keys()
    assert abs(ours["kl_pre_post_v1"] - theirs["kl_pre_post_v1"]) <= TOLERANCE * batch.scale(terms)
    squares = batch.scale([0.5 * d * d for d in terms])
    assert abs(ours["kl_pre_post_v2"] - theirs["kl_pre_post_v2"]) <= TOLERANCE * squares


@pytest.mark.parametrize("discount", [0.0, 0.95])
def test_kl_penalty(batch: Batch, discount: float) -> None:
    """incorporate_kl_penalty: the key, and every advantage within a few float32 roundings of what it is made of."""
    data, client = batch.data, SamplingClient([each.tolist() for each in batch.others])
    theirs, _ = asyncio.run(originals.incorporate_kl_penalty(data, client, 0.1, discount))
    ours = incorporate_kl_penalty(
        batch.logprobs, batch.others, batch.masks, batch.advantages, coef=0.1, discount=discount
    )

    scale = batch.scale(_terms(batch))
    assert ours.metrics.values.keys() == theirs.keys()
    assert abs(ours.metrics.values["kl_policy_base"] - theirs["kl_policy_base"]) <= TOLERANCE * scale
    for mine, datum, given in zip(ours.advantages, data, batch.advantages):
        assert mine.dtype == given.dtype
        np.testing.assert_allclose(
            np.asarray(mine), datum.loss_fn_inputs["advantages"].to_numpy(), rtol=1e-6, atol=4e-6
        )


@pytest.mark.parametrize("discount", [0.0, 0.95])
def test_teacher_kl(batch: Batch, discount: float) -> None:
    """incorporate_kl_penalty of distillation: every key, those of data sets too, and every advantage."""
    data, client = batch.data, SamplingClient([each.tolist() for each in batch.others])
    sets = [index % 3 for index in range(len(data))]
    theirs = asyncio.run(originals.incorporate_teacher_kl(data, [client] * len(data), sets, 0.1, discount))
    ours = incorporate_kl_penalty(
        batch.logprobs,
        batch.others,
        batch.masks,
        batch.advantages,
        coef=0.1,
        discount=discount,
        reverse_kl=True,
        datasets=[str(each) for each in sets],
    )

    scale = batch.scale(_terms(batch))
    assert ours.metrics.values.keys() == theirs.keys()
    for key, value in theirs.items():
        assert abs(ours.metrics.values[key] - value) <= 4 * TOLERANCE * max(scale, 1.0)
    for mine, datum, given in zip(ours.advantages, data, batch.advantages):
        assert mine.dtype == given.dtype
        np.testing.assert_allclose(
            np.asarray(mine), datum.loss_fn_inputs["advantages"].to_numpy(), rtol=1e-6, atol=4e-6
        )


def test_mean_nll(batch: Batch) -> None:
    """compute_mean_nll, with weights of zero among others."""
    tensors = [[tinker.TensorData.from_numpy(each) for each in column] for column in (batch.logprobs, batch.masks)]
    theirs = originals.compute_mean_nll(*tensors)
    ours = mean_nll(batch.logprobs, batch.masks).metrics.values

    assert abs(ours["nll"] - theirs) <= TOLERANCE * batch.scale(batch.logprobs)
    assert ours["perplexity"] == math.exp(ours["nll"])


@rows("seed", range(5))
@rows("tagged", [True, False])
def test_trajectories(seed: int, tagged: bool) -> None:
    """compute_trajectory_metrics: every key, cached tokens included."""
    rng = np.random.default_rng(seed)
    groups = [_group(rng) for _ in range(12)]
    tags = [rng.permutation(["math", "code", "gsm"])[: rng.integers(0, 3)].tolist() if tagged else [] for _ in groups]

    theirs = originals.compute_trajectory_metrics(groups, tags)
    ours = trajectory_metrics(TrajectoryBatch.of(groups, tags)).values

    assert ours.keys() == theirs.keys()
    assert any(key.startswith("env/math/") for key in ours) == tagged
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, rel=1e-12, abs=1e-12)


def _group(rng: np.random.Generator):
    def transition():
        seen = int(rng.integers(1, 50))
        return originals.types.Transition(
            ob=tinker.ModelInput.from_ints([1] * seen),
            ac=originals.TokensWithLogprobs(
                tokens=[1] * int(rng.integers(0, 20)),
                maybe_logprobs=None,
                prompt_cache_hit_tokens=int(rng.integers(0, seen + 1)),
            ),
            reward=float(rng.integers(0, 2)),
            episode_done=False,
            metrics={"turn": rng.normal(), **({"some": rng.normal()} if rng.random() < 0.5 else {})},
        )

    size = int(rng.integers(1, 4))
    trajectories = [
        originals.types.Trajectory(
            transitions=[transition() for _ in range(rng.integers(1, 4))], final_ob=tinker.ModelInput.empty()
        )
        for _ in range(size)
    ]
    return originals.types.TrajectoryGroup(
        trajectories_G=trajectories,
        final_rewards_G=rng.integers(0, 2, size).astype(float).tolist(),
        metrics_G=[{"some": rng.normal(), "end": 1.0} for _ in range(size)],
    )


@pytest.mark.parametrize("pairs", [1, 64, 10_000])
def test_dpo(pairs: int) -> None:
    """compute_dpo_loss: every key."""
    rng = np.random.default_rng(pairs)
    columns = [(-20 * rng.random(pairs)).astype(np.float32) for _ in range(4)]
    _, theirs = originals.compute_dpo_loss(*[list(torch.from_numpy(column)) for column in columns], 0.1)
    ours = dpo_metrics(*columns, beta=0.1).values

    scale = 0.1 * float(np.mean([np.abs(column).mean(dtype=np.float64) for column in columns]))
    assert ours.keys() == theirs.keys()
    assert ours["accuracy"] == pytest.approx(theirs["accuracy"], rel=TOLERANCE)
    for key in ours:
        assert abs(ours[key] - theirs[key]) <= TOLERANCE * max(scale, abs(theirs[key]))


def test_sampling_clients() -> None:
    """compute_sampling_client_metrics: every key."""
    rng = np.random.default_rng(9)
    steps, seconds = rng.integers(0, 1000, 50), rng.exponential(10, 50)
    groups = [
        SimpleNamespace(sampling_client_step=step, metrics={"time/trajectory_group_worker_loop/total": second})
        for step, second in zip(steps.tolist(), seconds.tolist())
    ]
    theirs = originals.compute_sampling_client_metrics(groups)

    assert sampling_client_metrics(steps, seconds).values == pytest.approx(theirs, rel=1e-14)


def test_the_originals_lose_digits_that_ours_keep() -> None:
    """Small differences of large values drown in float32, not in float64."""
    rng = np.random.default_rng(6)
    sampling = -1e4 + rng.normal(0, 1, 100_000)
    training = sampling - rng.normal(1e-3, 1e-4, sampling.size)
    mask = np.ones(sampling.size, np.float32)
    exact = math.fsum(sampling - training) / sampling.size
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1]),
        loss_fn_inputs={
            "logprobs": tinker.TensorData.from_numpy(sampling.astype(np.float32)),
            "mask": tinker.TensorData.from_numpy(mask),
        },
    )

    theirs = originals.compute_kl_sample_train([datum], [torch.from_numpy(training.astype(np.float32))])
    ours = kl_sample_train([sampling], [training], [mask]).metrics.values

    key = "optim/kl_sample_train_v1"
    assert abs(ours[key] - exact) <= 1e-12 * exact
    assert abs(theirs[key] - exact) > 1e-5 * exact


def test_an_outlier_swallows_what_the_original_adds_after_it() -> None:
    """A float32 sum that holds 1e9 no longer sees terms of 1; float64 does."""
    logprobs = np.full(1_000_000, -1.0, np.float32)
    logprobs[0] = -1e9
    weights = np.ones(logprobs.size, np.float32)
    exact = math.fsum(-logprobs.astype(np.float64)) / logprobs.size

    theirs = originals.compute_mean_nll(
        [tinker.TensorData.from_numpy(logprobs)], [tinker.TensorData.from_numpy(weights)]
    )
    ours = mean_nll([logprobs], [weights]).metrics.values["nll"]

    assert abs(ours - exact) <= 1e-12 * exact
    assert abs(theirs - exact) > 1e-6 * exact
