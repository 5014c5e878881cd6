"""Further measures of the distance of two policies: on request, as they take more passes over the tokens.

With d = log p_sample - log p_train of an action token, r = exp(-d) its importance ratio p_train / p_sample, and n
action tokens:

    optim/kl_sample_train_v3        mean(r - 1 + d): unbiased and never negative (Schulman, 2020)
    optim/kl_sample_train_max_abs   max |d|
    optim/importance_ess            (sum r)^2 / sum r^2, in tokens, from 1 to n: the effective sample size (Kish, 1965);
                                    how many tokens from the training policy itself the sampled ones are worth
    optim/clip_fraction             share of tokens with |r - 1| > 0.2, which PPO may clip (Schulman et al., 2017)
    <key>_stderr                    of v1, v2, v3 and entropy: sqrt(C / (C - 1) * sum_i (S_i - n_i * mean)^2) / n

S_i is the sum over the n_i action tokens of sequence i, C the number of sequences with action tokens: tokens of one
sequence are not independent, so errors are clustered by sequence (Liang and Zeger, 1986).

Per sequence, NaN if it has no action token: the means v1, v2, v3 and entropy, max |d|, and `action_tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crucible_bridge.types import Metrics
from crucible_worker.metrics.defects import BEYOND_FLOAT64, NO_ACTION_TOKENS
from crucible_worker.metrics.sums import sequence_blocks, total

__all__ = ["CLIP", "extended_kl"]

CLIP = 0.2
"""Distance of an importance ratio from 1 beyond which PPO clips it."""

_V1, _V2, _V3 = "optim/kl_sample_train_v1", "optim/kl_sample_train_v2", "optim/kl_sample_train_v3"
_ENTROPY, _MAX, _ESS, _CLIPPED = (
    "optim/entropy",
    "optim/kl_sample_train_max_abs",
    "optim/importance_ess",
    "optim/clip_fraction",
)
_TOKENS = "action_tokens"
_MEANS = (_V1, _V2, _V3, _ENTROPY)

# exp(x) - 1 - x = x^2 * (1/2! + x/3! + x^2/4! + ...), to the last bit for |x| <= 1/2; from the highest power.
_SERIES = tuple(1.0 / math.factorial(power) for power in range(16, 1, -1))


def extended_kl(
    sampling_logprobs: Sequence[np.ndarray],
    training_logprobs: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    *,
    undefined: str,
) -> tuple[Metrics, dict[str, np.ndarray]]:
    """The metrics of the module's description, beyond v1, v2 and entropy.

    Args:
        sampling_logprobs: one array of shape (T_i,) per sequence, nats.
        training_logprobs: same shapes, nats.
        masks: same shapes; a token counts where its mask is above zero.
        undefined: why v1 and v2 are undefined; empty if they are defined.

    Returns:
        The metrics, and by key one float64 array of shape (sequences,).
    """
    with np.errstate(over="ignore", invalid="ignore"):  # the reasons of undefined keys report it
        parts = [_sequences(*part) for part in sequence_blocks(sampling_logprobs, training_logprobs, masks)]
        columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        values, missing = _over_all(columns)
    tokens = columns[_TOKENS]
    per_sequence = {key: columns[key] / np.where(tokens > 0, tokens, np.nan) for key in _MEANS}
    per_sequence |= {_MAX: columns[_MAX], _TOKENS: tokens}
    keys = [*values, *missing]
    if undefined:
        # One policy's values may be finite when the other's are not: the error of its entropy is reported all the same.
        kept = {key: value for key, value in values.items() if key.startswith(_ENTROPY) and math.isfinite(value)}
        reasons = {key: missing.get(key, undefined) if key.startswith(_ENTROPY) else undefined for key in keys}
        return Metrics.of(kept, {key: reason for key, reason in reasons.items() if key not in kept}), per_sequence
    missing |= {key: BEYOND_FLOAT64 for key, value in values.items() if not math.isfinite(value)}
    return Metrics.of({key: values[key] for key in values if key not in missing}, missing), per_sequence


def _sequences(
    lengths: np.ndarray, sampling: np.ndarray, training: np.ndarray, mask: np.ndarray
) -> dict[str, np.ndarray]:
    """Sums over the action tokens of each of S sequences: lengths of shape (S,), all others of shape (their sum,)."""
    kept = np.flatnonzero(mask > 0)
    counts = np.diff(np.searchsorted(kept, np.cumsum(lengths)), prepend=0)
    used = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts).take(used)

    def spread(ufunc: np.ufunc, values: np.ndarray, without: float) -> np.ndarray:
        """One value per sequence; parts without a token are left out, as `reduceat` treats them differently."""
        found = np.full(lengths.size, without)
        if used.size:
            found[used] = ufunc.reduceat(values, starts)
        return found

    first, second = sampling.take(kept).astype(np.float64), training.take(kept).astype(np.float64)
    difference = first - second
    ratios_less_one = np.expm1(-difference)
    # Ratios relative to the greatest of their sequence, which may be beyond float64 although its logarithm is not.
    top = spread(np.maximum, -difference, -math.inf)
    ratios = np.exp(-difference - np.repeat(top, counts))
    return {
        _V1: spread(np.add, difference, 0.0),
        _V2: 0.5 * spread(np.add, difference * difference, 0.0),
        _V3: spread(np.add, _excess(-difference, ratios_less_one), 0.0),
        _ENTROPY: -spread(np.add, first, 0.0),
        _MAX: spread(np.maximum, np.abs(difference), math.nan),
        _CLIPPED: spread(np.add, (np.abs(ratios_less_one) > CLIP).astype(np.float64), 0.0),
        "top": top,
        "ratios": spread(np.add, ratios, 0.0),
        "ratios_squared": spread(np.add, ratios * ratios, 0.0),
        _TOKENS: counts.astype(np.float64),
    }


def _excess(exponent: np.ndarray, ratios_less_one: np.ndarray) -> np.ndarray:
    """exp(x) - 1 - x; near 0 by its series, as the difference would leave only rounding errors."""
    small = np.clip(exponent, -0.5, 0.5)
    series = np.full_like(small, _SERIES[0])
    for coefficient in _SERIES[1:]:
        series *= small
        series += coefficient
    return np.where(np.abs(exponent) <= 0.5, series * small * small, ratios_less_one - exponent)


def _over_all(columns: dict[str, np.ndarray]) -> tuple[dict[str, float], dict[str, str]]:
    """Values over all tokens, and reasons if there are too few."""
    counts = columns[_TOKENS]
    used = np.flatnonzero(counts)
    errors = [f"{key}_stderr" for key in _MEANS]
    if not used.size:
        return {}, dict.fromkeys((_V3, _MAX, _ESS, _CLIPPED, *errors), NO_ACTION_TOKENS)
    tokens, top = float(counts.sum()), columns["top"].take(used)
    scale = np.exp(top - top.max())
    weights = float((columns["ratios"].take(used) * scale).sum())
    squares = float((columns["ratios_squared"].take(used) * scale * scale).sum())
    values = {
        _V3: total(columns[_V3].take(used)) / tokens,
        _MAX: float(columns[_MAX].take(used).max()),
        _ESS: weights * weights / squares,
        _CLIPPED: float(columns[_CLIPPED].sum()) / tokens,
    }
    if used.size == 1:
        return values, dict.fromkeys(errors, "only one sequence has action tokens")
    for key, name in zip(_MEANS, errors):
        sums = columns[key].take(used)
        residuals = sums - counts.take(used) * (total(sums) / tokens)
        spread = used.size / (used.size - 1) * float((residuals * residuals).sum())
        values[name] = math.sqrt(spread) / tokens if spread >= 0 else math.nan
    return values, {}
