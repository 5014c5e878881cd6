"""KL divergence between two policies, from the log-probabilities that each gives to the same tokens.

Estimators per action token (Schulman, "Approximating KL Divergence", 2020), with d = log p_first - log p_second and
tokens sampled from the first policy:

    v1 = mean(d)             unbiased, of either sign
    v2 = mean(d^2) / 2       biased, never negative, of less variance
    entropy = -mean(log p_first)

Keys follow tinker-cookbook's `compute_kl_sample_train` and `compute_post_kl`, which sum in float32; here sums are
float64 (see `crucible_worker.metrics.sequences`). More measures are computed on request.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.types import KLPostUpdate, KLSampleTrain, Metrics, Ragged
from crucible_worker.metrics.sequences import (
    BEYOND_FLOAT64,
    BLOCK_TOKENS,
    NO_ACTION_TOKENS,
    Defects,
    blocks,
    check_sequences,
    count_values,
    dot,
    exact_sum,
    input_field,
    sequence_blocks,
    total,
)

__all__ = ["CLIP", "extended_kl", "kl_post_update", "kl_sample_train"]

# Further measures of the distance of two policies: on request, as they take more passes over the tokens.
#
# With d = log p_sample - log p_train of an action token, r = exp(-d) its importance ratio p_train / p_sample, and n
# action tokens:
#
#     optim/kl_sample_train_v3        mean(r - 1 + d): unbiased and never negative (Schulman, 2020)
#     optim/kl_sample_train_max_abs   max |d|
#     optim/importance_ess            (sum r)^2 / sum r^2, in tokens, from 1 to n: the effective sample size (Kish,
#                                     1965); how many tokens from the training policy itself the sampled ones are worth
#     optim/clip_fraction             share of tokens with |r - 1| > 0.2, which PPO may clip (Schulman et al., 2017)
#     <key>_stderr                    of v1, v2, v3 and entropy: sqrt(C / (C - 1) * sum_i (S_i - n_i * mean)^2) / n
#
# S_i is the sum over the n_i action tokens of sequence i, C the number of sequences with action tokens: tokens of one
# sequence are not independent, so errors are clustered by sequence (Liang and Zeger, 1986).
#
# Per sequence, NaN if it has no action token: the means v1, v2, v3 and entropy, max |d|, and `action_tokens`.

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


_POST_V1, _POST_V2 = "kl_pre_post_v1", "kl_pre_post_v2"
_CLEAN = Defects()


def kl_sample_train(
    sampling_logprobs: Sequence[np.ndarray],
    training_logprobs: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    *,
    extended: bool = False,
) -> KLSampleTrain:
    """Compare the policy that sampled with the policy that trains.

    Args:
        sampling_logprobs: one array of shape (T_i,) per sequence, nats.
        training_logprobs: same shapes, nats.
        masks: same shapes; a token counts where its mask is above zero, and other tokens' values are ignored.
        extended: also the further measures that are described above.

    Returns:
        `optim/kl_sample_train_v1`, `optim/kl_sample_train_v2` and `optim/entropy`, in nats per action token, and how
        number of these tokens. Keys without a finite value are undefined, with the reason.

    Raises:
        InvalidField: there is no sequence, or the arrays of one do not fit each other.
    """
    check_sequences(sampling_logprobs, {"training_logprobs[{}]": training_logprobs, input_field("mask"): masks})
    totals = _sum_up(sampling_logprobs, training_logprobs, masks)
    undefined = totals.undefined("logprobs", "training_logprobs")
    parts = [
        _metrics({_V1: totals.mean(totals.difference), _V2: 0.5 * totals.mean(totals.squares)}, undefined),
        _metrics({_ENTROPY: -totals.mean(totals.first)}, totals.undefined("logprobs")),
    ]
    per_sequence: Mapping[str, np.ndarray] = {}
    if extended:
        more, per_sequence = extended_kl(sampling_logprobs, training_logprobs, masks, undefined=undefined)
        parts.append(more)
    metrics = Metrics.of(
        {key: value for part in parts for key, value in part.values.items()},
        {key: reason for part in parts for key, reason in part.undefined.items()},
    )
    return KLSampleTrain(metrics=metrics, action_tokens=totals.tokens, per_sequence=per_sequence)


def kl_post_update(
    logprobs: Sequence[np.ndarray],
    updated_logprobs: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    *,
    updated_field: str = "updated_logprobs",
) -> KLPostUpdate:
    """Compare a policy before an update with itself after.

    Args:
        logprobs: before, one array of shape (T_i,) per sequence, nats.
        updated_logprobs: after, same shapes, nats.
        masks: same shapes; a token counts where its mask is above zero, and other tokens' values are ignored.
        updated_field: the name of `updated_logprobs` in errors.

    Returns:
        `kl_pre_post_v1` and `kl_pre_post_v2`, in nats per action token, and the number of these tokens. Keys without a
        finite value are undefined, with the reason.

    Raises:
        InvalidField: there is no sequence, or the arrays of one do not fit each other.
    """
    check_sequences(logprobs, {updated_field + "[{}]": updated_logprobs, input_field("mask"): masks})
    totals = _sum_up(logprobs, updated_logprobs, masks)
    values = {_POST_V1: totals.mean(totals.difference), _POST_V2: 0.5 * totals.mean(totals.squares)}
    metrics = _metrics(values, totals.undefined("logprobs", updated_field))
    return KLPostUpdate(metrics=metrics, action_tokens=totals.tokens)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Sums over tokens: those of a block, or all."""

    tokens: int
    difference: float
    squares: float
    first: float
    first_defects: Defects = _CLEAN
    second_defects: Defects = _CLEAN

    def mean(self, total: float) -> float:
        return total / self.tokens if self.tokens else math.nan

    def undefined(self, first: str, second: str = "") -> str:
        """Why means over the first policy's values, or over both, do not exist; empty if they may exist."""
        if not self.tokens:
            return NO_ACTION_TOKENS
        reason = self.first_defects.reason(self.tokens, of=first)
        if second and not reason:
            reason = self.second_defects.reason(self.tokens, of=second)
        return reason


def _metrics(values: dict[str, float], undefined: str) -> Metrics:
    if undefined:
        return Metrics.all_undefined(values, undefined)
    missing = {key: BEYOND_FLOAT64 for key, value in values.items() if not math.isfinite(value)}
    return Metrics.of({key: value for key, value in values.items() if key not in missing}, missing)


def _sum_up(first: Sequence[np.ndarray], second: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> _Totals:
    dtypes = {masks.values.dtype} if isinstance(masks, Ragged) else {mask.dtype for mask in masks}
    mask_dtype = np.result_type(*dtypes)
    scratch = np.empty((2, min(BLOCK_TOKENS, count_values(first))))
    with np.errstate(over="ignore", invalid="ignore"):  # the reasons of undefined keys report it
        parts = [
            _sum_block(*block, *scratch[:, : block[0].size])
            for block in blocks(first, second, masks, dtypes=(np.float64, np.float64, mask_dtype))
        ]
    return _Totals(
        tokens=sum(part.tokens for part in parts),
        difference=exact_sum(part.difference for part in parts),
        squares=exact_sum(part.squares for part in parts),
        first=exact_sum(part.first for part in parts),
        first_defects=sum((part.first_defects for part in parts if part.first_defects is not _CLEAN), _CLEAN),
        second_defects=sum((part.second_defects for part in parts if part.second_defects is not _CLEAN), _CLEAN),
    )


def _sum_block(
    first: np.ndarray, second: np.ndarray, mask: np.ndarray, weight: np.ndarray, difference: np.ndarray
) -> _Totals:
    """Sums of one block, all of shape (N,); the last two are scratch space."""
    counted = mask > 0
    # Times 0 or 1 costs a third of picking the tokens out. Only NaN and infinities survive a 0: then we pick them out.
    np.copyto(weight, counted)
    np.subtract(first, second, out=difference)
    np.multiply(difference, weight, out=difference)
    total, squares, surprise = dot(difference, weight), dot(difference, difference), dot(first, weight)
    if math.isfinite(total + squares + surprise):
        return _Totals(tokens=int(np.count_nonzero(counted)), difference=total, squares=squares, first=surprise)
    return _sum_counted(first[counted], second[counted])


def _sum_counted(first: np.ndarray, second: np.ndarray) -> _Totals:
    """The same for action tokens only, when some may not be finite."""
    difference = first - second
    return _Totals(
        tokens=difference.size,
        difference=float(difference.sum()),
        squares=dot(difference, difference),
        first=float(first.sum()),
        first_defects=Defects.among(first),
        second_defects=Defects.among(second),
    )
