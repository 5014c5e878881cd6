"""pass@k: how likely one of k samples of a problem is right.

    pass@<k> = mean of 1 - C(n - c, k) / C(n, k)        over the problems with n >= k samples, c of them right

The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code", 2021. Drawing k and hitting
one of c is drawing c and hitting one of k; with d the lesser of both and t the greater, the chance is

    -expm1(sum over j < d of log1p(-t / (n - j)))

The terms have one sign, so small chances keep their digits, which a difference from 1 would lose: the relative
error is below 1e-12. The chance that no draw hits is at most exp(-t * d / n). If that is negligible, no draw is
evaluated; otherwise d is below sqrt(40 * n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics
from crucible_worker.metrics.sequences import check_column

__all__ = ["MAX_DRAWS", "MAX_KS", "MAX_SAMPLES_PER_PROBLEM", "most_draws", "pass_at_k"]

MAX_SAMPLES_PER_PROBLEM = 100_000
"""The time for one problem grows with its square root, and no benchmark has as many samples."""
MAX_KS = 100
"""Values of k in a request."""

MAX_DRAWS = 50_000_000
"""Draws evaluated for a request, at least one for each k and each distinct problem: about a second."""

_CERTAIN = 40.0
"""From this value of t * d / n on, the chance to miss is below 2^-57."""
_BLOCK_DRAWS = 65_536
"""Draws evaluated at once: their columns fit in a second-level cache."""


def most_draws(samples: np.ndarray, ks: Sequence[int]) -> int:
    """An upper bound of the draws that `pass_at_k` evaluates: quick, and also for arguments that it will refuse."""
    if not samples.size or not ks:
        return 0
    longest = math.isqrt(int(_CERTAIN) * min(max(int(samples.max()), 0), MAX_SAMPLES_PER_PROBLEM)) + 1
    return samples.size * sum(max(1, min(k, longest)) for k in ks)


def pass_at_k(samples: np.ndarray, successes: np.ndarray, ks: Sequence[int]) -> Metrics:
    """Estimate pass@k.

    Args:
        samples: n of each problem, shape (problems,), integers.
        successes: c of each problem, likewise, from 0 to n.
        ks: values of k, each above 0 and once.

    Returns:
        `pass@<k>` for each k; undefined if no problem has as many samples.

    Raises:
        InvalidField: there is no problem or no k, the columns differ in length, a number is out of range, or there is
            more than `MAX_DRAWS` to evaluate.
    """
    _check(samples, successes, ks)
    # Problems with the same numbers have the same chance.
    keys = samples.astype(np.int64) * (MAX_SAMPLES_PER_PROBLEM + 1) + successes
    keys, weights = np.unique(keys, return_counts=True)
    pairs = np.divmod(keys, MAX_SAMPLES_PER_PROBLEM + 1)
    left = MAX_DRAWS
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for k in ks:
        enough = pairs[0] >= k
        if enough.any():
            problems, successful, counts = pairs[0][enough], pairs[1][enough], weights[enough]
            draws, targets = _draws(problems, successful, k)
            left -= int(np.maximum(draws, 1).sum())
            if left < 0:
                raise InvalidField(
                    "k", f"takes more than {MAX_DRAWS:,} draws with these problems: request fewer at once"
                )
            chances = _chances(problems, draws, targets)
            values[f"pass@{k}"] = float((chances * counts).sum()) / int(counts.sum())
        else:
            undefined[f"pass@{k}"] = f"no problem has {k:,} {'sample' if k == 1 else 'samples'}"
    return Metrics.of(values, undefined)


def _draws(samples: np.ndarray, successes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The draws to evaluate, none if one hits for certain, and the targets; both of shape (pairs,)."""
    draws, targets = np.minimum(successes, k), np.maximum(successes, k)
    # Fewer wrong samples than draws: one must hit. The product may exceed int64 if k is large.
    certain = (samples - successes < k) | (draws * targets.astype(np.float64) >= _CERTAIN * samples)
    return np.where(certain & (draws > 0), 0, draws), np.where(certain & (draws > 0), 0, targets)


def _chances(samples: np.ndarray, draws: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 - C(n - c, k) / C(n, k), shape (pairs,)."""
    # Without targets a hit is certain; one draw needs no logarithm.
    chances = np.where(targets == 0, 1.0, np.where(draws == 1, targets / np.maximum(samples, 1), 0.0))
    several = np.flatnonzero(draws > 1)
    ends = np.cumsum(draws[several])
    first = 0
    while first < several.size:
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK_DRAWS, side="right")))
        block = several[first:last]
        lengths = draws[block]
        starts = np.cumsum(lengths) - lengths
        left = np.repeat(samples[block] + starts, lengths) - np.arange(int(lengths.sum()))
        missed = np.log1p(-np.repeat(targets[block].astype(np.float64), lengths) / left)
        chances[block] = -np.expm1(np.add.reduceat(missed, starts))
        first = last
    return chances


def _check(samples: np.ndarray, successes: np.ndarray, ks: Sequence[int]) -> None:
    check_column(samples, "samples", kinds="iu")
    if not samples.size:
        raise InvalidField("samples", "is empty")
    check_column(successes, "successes", kinds="iu", length=samples.size, of="problems")
    for field, column, high in (
        ("samples", samples, np.broadcast_to(MAX_SAMPLES_PER_PROBLEM, samples.shape)),
        ("successes", successes, samples),
    ):
        if (wrong := np.flatnonzero((column < 0) | (column > high))).size:
            at = int(wrong[0])
            raise InvalidField(f"{field}[{at}]", f"is {column[at]:,}, it must lie in [0, {high[at]:,}]")
    if not ks:
        raise InvalidField("k", "is empty")
    if len(ks) > MAX_KS:
        raise InvalidField("k", f"has {len(ks):,} values, at most {MAX_KS} are accepted")
    for index, k in enumerate(ks):
        if k < 1:
            raise InvalidField(f"k[{index}]", f"is {k}, it must be above 0")
        if k in ks[:index]:
            raise InvalidField(f"k[{index}]", f"is {k}, which occurs twice")
