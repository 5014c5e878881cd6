"""pass@k: how likely one of k samples of a problem is right.

    pass@<k> = mean of 1 - C(n - c, k) / C(n, k)        over the problems with n >= k samples, c of them right

The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code", 2021. It is summed up as the
chance that the j-th draw is the first to hit: positive terms only, so that small chances keep their digits, which a
difference from 1 would not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics
from crucible_worker.metrics.sequences import check_column

__all__ = ["MAX_KS", "MAX_SAMPLES_PER_PROBLEM", "pass_at_k"]

MAX_SAMPLES_PER_PROBLEM = 100_000
"""The time for one problem grows with it, and no benchmark comes near."""
MAX_KS = 100
"""Values of k in a request."""

_DRAWS_BETWEEN_LOOKS = 64


def pass_at_k(samples: np.ndarray, successes: np.ndarray, ks: Sequence[int]) -> Metrics:
    """Estimate pass@k.

    Args:
        samples: n of each problem, shape (problems,), integers.
        successes: c of each problem, likewise, from 0 to n.
        ks: values of k, each above 0 and once.

    Returns:
        `pass@<k>` for each k; undefined where no problem has as many samples.

    Raises:
        InvalidField: there is no problem or no k, the columns differ in length, or a number is out of range.
    """
    _check(samples, successes, ks)
    # Problems of the same numbers have the same chance.
    pairs, weights = np.unique(np.stack([samples, successes]).astype(np.int64), axis=1, return_counts=True)
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for k in ks:
        enough = pairs[0] >= k
        if enough.any():
            chances, counts = _chances(pairs[0, enough], pairs[1, enough], k), weights[enough]
            values[f"pass@{k}"] = float((chances * counts).sum()) / int(counts.sum())
        else:
            undefined[f"pass@{k}"] = f"no problem has {k:,} {'sample' if k == 1 else 'samples'}"
    return Metrics.of(values, undefined)


def _chances(samples: np.ndarray, successes: np.ndarray, k: int) -> np.ndarray:
    """1 - C(n - c, k) / C(n, k), shape (pairs,)."""
    # Drawing k and hitting one of c is drawing c and hitting one of k: take the fewer draws.
    draws, targets = np.minimum(successes, k), np.maximum(successes, k).astype(np.float64)
    chances = np.zeros(samples.size)
    missed = np.ones(samples.size)
    left = samples.astype(np.float64)
    for draw in range(int(draws.max(initial=0))):
        if draw % _DRAWS_BETWEEN_LOOKS == 0 and not (missed[draws > draw] > 0).any():
            break
        hit = np.where(draw < draws, np.minimum(1.0, targets / (left - draw)), 0.0)
        chances += missed * hit
        missed *= 1.0 - hit
    # Fewer wrong samples than draws: one must hit.
    return np.where(samples - successes < k, 1.0, chances)


def _check(samples: np.ndarray, successes: np.ndarray, ks: Sequence[int]) -> None:
    check_column(samples, "samples", kinds="iu")
    if not samples.size:
        raise InvalidField("samples", "is empty")
    check_column(successes, "successes", kinds="iu", length=samples.size, of="problems")
    for field, column, low, high in (
        ("samples", samples, np.zeros_like(samples), np.full_like(samples, MAX_SAMPLES_PER_PROBLEM)),
        ("successes", successes, np.zeros_like(successes), samples),
    ):
        if (wrong := np.flatnonzero((column < low) | (column > high))).size:
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
            raise InvalidField(f"k[{index}]", f"is {k} a second time")
