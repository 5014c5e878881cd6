"""KL divergence between two policies, from the log-probabilities that each gives to the same tokens.

Estimators per action token (Schulman, "Approximating KL Divergence", 2020), with d = log p_first - log p_second and
tokens sampled from the first policy:

    v1 = mean(d)             unbiased, of either sign
    v2 = mean(d^2) / 2       biased, never negative, of less variance
    entropy = -mean(log p_first)

Keys follow tinker-cookbook's `compute_kl_sample_train` and `compute_post_kl`, which sum in float32; here sums are
float64 (see `crucible_worker.metrics.sums`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.types import KLPostUpdate, KLSampleTrain, Metrics, Ragged
from crucible_worker.metrics.defects import BEYOND_FLOAT64, NO_ACTION_TOKENS, Defects
from crucible_worker.metrics.kl_extended import extended_kl
from crucible_worker.metrics.sequences import check_sequences, input_field
from crucible_worker.metrics.sums import BLOCK_TOKENS, blocks, count_values, dot, exact_sum

__all__ = ["kl_post_update", "kl_sample_train"]

_V1, _V2, _ENTROPY = "optim/kl_sample_train_v1", "optim/kl_sample_train_v2", "optim/entropy"
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
        extended: also everything that `crucible_worker.metrics.kl_extended` describes.

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
