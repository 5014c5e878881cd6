"""The metric functions alone against tinker-cookbook's own, in one process: no wire, no worker.

Both get their own types of input, built beforehand: arrays or columns here, tinker's Datums and tinker-cookbook's
trajectory groups there. Runs alternate, so that other load of the machine affects both. Without tinker-cookbook
there is nothing to measure, and a message says so.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from _originals import Originals, SamplingClient, load_originals, missing_packages
from _report import Claim, arguments, report

from crucible_bridge.types import TrajectoryBatch
from crucible_worker.metrics.kl import kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll
from crucible_worker.metrics.trajectory import trajectory_metrics

if TYPE_CHECKING:
    import tinker

SEQUENCES, TOKENS = 512, 2_048
"""Sequences of the batch for KL and NLL: a million tokens."""
PENALTY_SEQUENCES = 32
"""Groups with as many tokens: the original takes 10 ms for one of them."""
GROUPS, TRAJECTORIES, TURNS = 256, 16, 4

FEW_TOKENS, MOST_TOKENS = 10_240, 5_242_880
"""From a small batch to one that fills a message: twelve bytes per token, 60 MiB."""
SMALL_CALLS = 100
"""Calls with small batches in a run."""

Timed = tuple[list[float], list[float]]


def paired(ours: Callable[[], Any], baseline: Callable[[], Any], runs: int) -> Timed:
    """Milliseconds of each, alternating; the first run warms both up."""
    taken: Timed = ([], [])
    for _ in range(runs + 1):
        for call, milliseconds in zip((ours, baseline), taken):
            started = time.perf_counter()
            call()
            milliseconds.append((time.perf_counter() - started) * 1e3)
    return taken[0][1:], taken[1][1:]


def arrays(rng: np.random.Generator, sequences: int, tokens: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Log-probabilities of two policies."""
    first = [(-rng.exponential(1.0, tokens)).astype(np.float32) for _ in range(sequences)]
    return first, [each + rng.normal(0, 0.05, tokens).astype(np.float32) for each in first]


def answers(rng: np.random.Generator, sequences: int, tokens: int) -> list[np.ndarray]:
    """Masks of a prompt and its answer."""
    masks = [np.ones(tokens, np.float32) for _ in range(sequences)]
    for mask in masks:
        mask[: rng.integers(1, tokens // 2)] = 0
    return masks


def interleaved(rng: np.random.Generator, sequences: int, tokens: int) -> list[np.ndarray]:
    """Masks of scattered single tokens: the worst case for branch prediction."""
    return [(rng.random(tokens) < 0.75).astype(np.float32) for _ in range(sequences)]


def datums(columns: dict[str, list[np.ndarray]]) -> list[tinker.Datum]:
    """The same as tinker's Datums."""
    import tinker

    return [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([1] * row[0].size),
            loss_fn_inputs={key: tinker.TensorData.from_numpy(array) for key, array in zip(columns, row)},
        )
        for row in zip(*columns.values())
    ]


def kl(originals: Originals, runs: int) -> list[Claim]:
    """compute_kl_sample_train, for masks of either kind."""
    import torch

    rng = np.random.default_rng(0)
    sampling, training = arrays(rng, SEQUENCES, TOKENS)
    tensors = [torch.from_numpy(each) for each in training]
    claims = []
    for kind in (answers, interleaved):
        masks = kind(rng, SEQUENCES, TOKENS)
        data = datums({"logprobs": sampling, "mask": masks})
        times = paired(
            lambda: kl_sample_train(sampling, training, masks),  # noqa: B023 - called within the iteration
            lambda: originals.compute_kl_sample_train(data, tensors),  # noqa: B023 - likewise
            runs,
        )
        claims.append(_claim(f"kl_sample_train_{kind.__name__}", times, at_least=4))
    return claims


def nll(originals: Originals, runs: int) -> list[Claim]:
    """compute_mean_nll."""
    import tinker

    rng = np.random.default_rng(1)
    logprobs, weights = arrays(rng, SEQUENCES, TOKENS)[0], answers(rng, SEQUENCES, TOKENS)
    tensors = [[tinker.TensorData.from_numpy(each) for each in column] for column in (logprobs, weights)]
    times = paired(lambda: mean_nll(logprobs, weights), lambda: originals.compute_mean_nll(*tensors), runs)
    return [_claim("mean_nll", times, at_least=1.5)]


def penalty(originals: Originals, runs: int) -> list[Claim]:
    """incorporate_kl_penalty with a discount."""
    rng = np.random.default_rng(2)
    logprobs, base = arrays(rng, PENALTY_SEQUENCES, TOKENS)
    masks = answers(rng, PENALTY_SEQUENCES, TOKENS)
    advantages = [rng.normal(0, 1, TOKENS).astype(np.float32) for _ in masks]
    # The original changes its data in place; that does not change what a run takes.
    targets = [np.ones(TOKENS, np.int64) for _ in masks]
    data = datums({"logprobs": logprobs, "mask": masks, "advantages": advantages, "target_tokens": targets})
    values = [each.tolist() for each in base]
    times = paired(
        lambda: incorporate_kl_penalty(logprobs, base, masks, advantages, coef=0.1, discount=0.99),
        lambda: asyncio.run(originals.incorporate_kl_penalty(data, SamplingClient(values), 0.1, 0.99)),
        runs,
    )
    return [_claim("kl_penalty_discounted", times, at_least=100)]


def trajectories(originals: Originals, runs: int) -> list[Claim]:
    """compute_trajectory_metrics: three metrics, three tags."""
    rng = np.random.default_rng(3)
    groups = [_group(originals, rng) for _ in range(GROUPS)]
    tags = [["rl", "math" if index % 2 else "code"] for index in range(GROUPS)]
    batch = TrajectoryBatch.of(groups, tags)
    times = paired(lambda: trajectory_metrics(batch), lambda: originals.compute_trajectory_metrics(groups, tags), runs)
    return [_claim("trajectory_metrics", times, at_least=50)]


def _group(originals: Originals, rng: np.random.Generator) -> Any:
    def transition() -> Any:
        return originals.types.Transition(
            ob=SimpleNamespace(length=int(rng.integers(1, 500))),
            ac=originals.TokensWithLogprobs(tokens=[1] * int(rng.integers(1, 50)), maybe_logprobs=None),
            reward=float(rng.integers(0, 2)),
            episode_done=False,
            metrics=dict(zip("abc", rng.normal(size=3).tolist())),
        )

    return originals.types.TrajectoryGroup(
        trajectories_G=[
            originals.types.Trajectory(transitions=[transition() for _ in range(TURNS)], final_ob=None)
            for _ in range(TRAJECTORIES)
        ],
        final_rewards_G=[0.0] * TRAJECTORIES,
        metrics_G=[{}] * TRAJECTORIES,
    )


def per_token(runs: int) -> list[Claim]:
    """Nanoseconds per token of a batch that fills a message, compared with those of a small one."""
    rng = np.random.default_rng(4)
    claims = []
    for name, call in (("kl_sample_train", kl_sample_train), ("mean_nll", lambda a, _, c: mean_nll(a, c))):
        batches = [
            (*arrays(rng, size // TOKENS, TOKENS), answers(rng, size // TOKENS, TOKENS))
            for size in (MOST_TOKENS, FEW_TOKENS)
        ]
        most, few = paired(
            lambda: call(*batches[0]),  # noqa: B023 - called within the iteration
            lambda: [call(*batches[1]) for _ in range(SMALL_CALLS)],  # noqa: B023 - likewise
            runs,
        )
        ours = [each * 1e6 / MOST_TOKENS for each in most]
        small = [each * 1e6 / (FEW_TOKENS * SMALL_CALLS) for each in few]
        claims.append(
            Claim(
                name=f"{name}_per_token",
                ours=ours,
                baseline=small,
                unit="ns",
                ratio=statistics.median(small) / statistics.median(ours),
                claim="goal: flat from 10k tokens to the message limit",
            )
        )
    return claims


def _claim(name: str, times: Timed, *, at_least: float) -> Claim:
    ratio = statistics.median(baseline / ours for ours, baseline in zip(*times))
    return Claim(
        name=name,
        ours=times[0],
        baseline=times[1],
        unit="ms",
        ratio=ratio,
        claim=f"at least {at_least:g} times",
        at_least=at_least,
    )


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    if missing := missing_packages():
        # `make bench` continues: the baseline is not part of this project.
        print(f"left out: {missing}", file=sys.stderr)
        return
    originals = load_originals()
    many = 4 * options.runs
    claims = [
        *kl(originals, many),
        *nll(originals, many),
        *trajectories(originals, many),
        *penalty(originals, options.runs),
        *per_token(options.runs),
    ]
    report(claims, as_json=options.json)


if __name__ == "__main__":
    main()
