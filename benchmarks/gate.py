"""What a gate promises: seldom blocks by chance, detectable differences as simulated, and time for 200,000 samples.

Candidates that are as good as the baseline are drawn from the same distributions; policies of several metrics allow no
drop. The smallest detectable difference is compared with the one that a simulation detects with a probability of 80 %.
Times are printed, not promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from _report import Claim, arguments, report

from crucible_worker.metrics.paired import AllowedDrop, GateFinding, finding, mcnemar_p, paired_difference, paired_drop
from crucible_worker.metrics.significance import holm, t_quantile

CONFIDENCE = 0.95
NULL_RUNS = 10_000
METRICS, NULL_SAMPLES = 5, 200
POWER_RUNS = 20_000
SAMPLES, CLUSTERS = 200_000, 20_000

Draw = Callable[[np.random.Generator], np.ndarray]


def binary(random: np.random.Generator) -> np.ndarray:
    """Scores of right and wrong answers, of a baseline and a candidate to the same questions."""
    difficulty = random.beta(2, 2, NULL_SAMPLES)
    return (random.random((2, NULL_SAMPLES)) < difficulty).astype(np.float64)


def continuous(random: np.random.Generator) -> np.ndarray:
    """Scores from 0 to 1, likewise."""
    difficulty = random.beta(2, 2, NULL_SAMPLES)
    return np.clip(difficulty + random.normal(0, 0.2, (2, NULL_SAMPLES)), 0, 1)


def blocked(random: np.random.Generator, draws: Iterator[Draw] | list[Draw]) -> bool:
    """Whether a policy that allows no drop blocks a candidate that is as good as the baseline."""
    drawn = [draw(random) for draw in draws]
    drops = [paired_drop(one, other, AllowedDrop(drop=0.0), confidence=CONFIDENCE) for one, other in drawn]
    corrected = holm([drop.chance for drop in drops if drop.chance is not None])
    return any(
        finding(drop, paired=True, min_n=30, corrected=chance, alpha=1 - CONFIDENCE) is GateFinding.FAIL
        for drop, chance in zip(drops, corrected, strict=True)
    )


def false_blocks() -> list[Claim]:
    """Shares of null runs that are blocked, for policies of one metric and of several."""
    policies = {
        "binary": [binary],
        "continuous": [continuous],
        "mixed": [binary, continuous] * (METRICS // 2) + [binary],
    }
    claims = []
    for name, draws in policies.items():
        random = np.random.default_rng(7)
        share = sum(blocked(random, draws) for _ in range(NULL_RUNS)) / NULL_RUNS
        words = f"{len(draws)} metrics" if len(draws) > 1 else "1 metric"
        claims.append(
            Claim(
                name=f"null_runs_blocked_{name}",
                ours=[share],
                unit="share",
                claim=f"at most 5 % of {NULL_RUNS:,} null runs, {words} of {NULL_SAMPLES} samples",
                at_most=0.05,
            )
        )
    return claims


def detected(simulated: Callable[[float], float], low: float, high: float) -> float:
    """The difference that a simulation detects with a probability of 80 %."""
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(middle) < 0.8 else (low, middle)
    return (low + high) / 2


def means_power(n: int) -> tuple[float, float]:
    """The smallest detectable difference of means, as computed and as simulated."""
    random = np.random.default_rng(11)
    differences = random.normal(0, 1, n)
    differences = (differences - differences.mean()) / differences.std(ddof=1)
    told = paired_difference(np.zeros(n), differences, confidence=CONFIDENCE).metrics.values["mde_80"]
    noise = random.normal(0, 1, (POWER_RUNS, n))
    means, errors = noise.mean(axis=1), noise.std(axis=1, ddof=1) / np.sqrt(n)
    critical = t_quantile((1 + CONFIDENCE) / 2, n - 1)
    return told, detected(lambda shift: float(np.mean(np.abs(means + shift) > critical * errors)), 0, 10 / np.sqrt(n))


def shares_power(n: int, changed: int) -> tuple[float, float]:
    """Likewise of right answers, by McNemar's exact test."""
    before, after = np.zeros(n), np.zeros(n)
    before[: changed // 2], after[changed // 2 : changed] = 1.0, 1.0
    told = paired_difference(before, after, confidence=CONFIDENCE).metrics.values["mde_80"]
    share = changed / n
    totals = np.random.default_rng(13).binomial(n, share, POWER_RUNS)
    # With this many changes of either kind, or fewer, the test rejects.
    few = np.array([_rejected(total) for total in range(int(totals.max()) + 1)])

    def simulated(difference: float) -> float:
        gained = np.random.default_rng(17).binomial(totals, (share + difference) / (2 * share))
        return float(np.mean(np.minimum(gained, totals - gained) <= few[totals]))

    return told, detected(simulated, 0, share)


def _rejected(total: int) -> int:
    """The most changes of the rarer kind with which McNemar's test of so many rejects; -1 if it never does."""
    fewer = -1
    while 2 * (fewer + 1) <= total and mcnemar_p(fewer + 1, total - fewer - 1) <= 1 - CONFIDENCE:
        fewer += 1
    return fewer


def powers() -> list[Claim]:
    """Computed over simulated differences: within 5 %."""
    found = {
        "means_30": means_power(30),
        "means_400": means_power(400),
        "shares_200": shares_power(200, 60),
        "shares_1000": shares_power(1_000, 200),
    }
    return [
        Claim(
            name=f"detectable_{name}",
            ours=[told],
            baseline=[simulated],
            unit="score",
            ratio=told / simulated,
            claim="within 5 % of a simulation",
            at_least=0.95,
            at_most=1.05,
        )
        for name, (told, simulated) in found.items()
    ]


def times(runs: int) -> list[Claim]:
    """Seconds for large comparisons."""
    random = np.random.default_rng(19)
    right = (random.random((2, SAMPLES)) < 0.7).astype(np.float64)
    measured = random.normal(0, 1, (2, SAMPLES))
    few = np.round(measured, 1)
    clusters = random.integers(CLUSTERS, size=SAMPLES)
    works: dict[str, Callable[[], object]] = {
        "gate_binary": lambda: paired_drop(right[0], right[1], AllowedDrop(drop=0.01), confidence=CONFIDENCE),
        "gate_continuous": lambda: paired_drop(measured[0], measured[1], AllowedDrop(drop=0.01), confidence=CONFIDENCE),
        "gate_clusters": lambda: paired_drop(
            measured[0], measured[1], AllowedDrop(drop=0.01), confidence=CONFIDENCE, clusters=clusters
        ),
        "compare_binary": lambda: paired_difference(*right, confidence=CONFIDENCE),
        "compare_continuous": lambda: paired_difference(*measured, confidence=CONFIDENCE),
        "compare_bootstrap": lambda: paired_difference(*few, confidence=CONFIDENCE),
        "compare_clusters": lambda: paired_difference(*measured, confidence=CONFIDENCE, clusters=clusters),
    }
    return [
        Claim(
            name=f"{name}_{SAMPLES // 1000}k",
            ours=[_seconds(work) for _ in range(runs)],
            unit="s",
            claim="none; goal: below 1 s",
        )
        for name, work in works.items()
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    report([*false_blocks(), *powers(), *times(options.runs)], as_json=options.json)


if __name__ == "__main__":
    main()
