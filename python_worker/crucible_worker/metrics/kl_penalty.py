"""Advantages with a penalty for leaving the base policy, discounted over the tokens that follow.

With diff = (log p - log p_base) * mask per token:

    kl_policy_base = avg = sum(diff) / sum(mask)         over the tokens of all data
    x = coef * mask * (avg - diff)                       per token
    advantages + x                                       discount = 0
    advantages[i] + sum over k of discount^k * x[i + k]  else, within the sequence

As on-policy distillation has it, with a teacher as the base policy:

    teacher_kl = sum(diff) / sum(mask)                   over the tokens of all data, and of each data set
    x = -coef * mask * diff                              per token

After tinker-cookbook's `incorporate_kl_penalty`, which changes its input in place, sums in float32 and steps through
tokens one by one; here everything is float64, and the new advantages are converted to the dtype of the given ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import KLPenalty, Metrics, Ragged
from crucible_worker.metrics.sequences import (
    BEYOND_FLOAT64,
    MAX_CANCELLATION,
    NO_ACTION_TOKENS,
    Defects,
    check_column,
    check_sequences,
    exact_total,
    input_field,
    total,
)

__all__ = ["incorporate_kl_penalty", "suffix_sums"]

# Discounted sums of future values: y[i] = x[i] + g * x[i + 1] + g^2 * x[i + 2] + ... within each sequence.
#
# The recurrence y[i] = x[i] + g * y[i + 1] needs one step per token. Here sequences are cut into pieces of equal
# length, which take their steps side by side. Then each piece receives the sums of the pieces that follow it: the first
# value of a piece is its sum, and the sums of the pieces of a sequence obey the same recurrence with the discount
# g^length. So a sequence of a million tokens takes some hundred steps, and rounding errors grow with the number of
# steps, not of tokens.

_LONGEST_PIECE = 64
"""Tokens of a piece, which are the steps of a round."""
_VALUES_AT_ONCE = 1 << 20
"""Values of sequences that are cut together, eight megabytes; a longer sequence is cut alone."""
_PIECES_AT_ONCE = 1_024
"""Pieces that take their steps together: half a megabyte, which stays in the cache."""


def suffix_sums(values: np.ndarray, lengths: np.ndarray, discount: float) -> None:
    """Replace values by their discounted sums.

    Args:
        values: shape (N,), float64: the sequences end to end; changed in place.
        lengths: of the sequences, shape (S,), integers; their sum is N.
        discount: g, in (0, 1].
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    start = done = 0
    while start < lengths.size:
        stop = int(np.searchsorted(ends, done + _VALUES_AT_ONCE, side="right"))
        stop = max(start + 1, min(stop, start + _VALUES_AT_ONCE))
        end = int(ends[stop - 1])
        _some_suffix_sums(values[done:end], lengths[start:stop], discount)
        start, done = stop, end


def _some_suffix_sums(values: np.ndarray, lengths: np.ndarray, discount: float) -> None:
    """The same for a block of sequences, which bounds the memory."""
    # The average length of a sequence, so that padding at most doubles the values; at least 2, so that it ends.
    size = int(np.clip(values.size // max(1, np.count_nonzero(lengths)), 2, _LONGEST_PIECE))
    pieces_of = -(-lengths // size)
    count = int(pieces_of.sum())
    if not count:
        return
    # Zeros at the end of a sequence change no sum before them.
    pieces = np.zeros((count, size))
    padded = pieces.reshape(-1)
    places = _places((np.cumsum(pieces_of) - pieces_of) * size, lengths)
    for place, span in places:
        padded[place] = values[span]
    for first in range(0, count, _PIECES_AT_ONCE):
        _step(pieces[first : first + _PIECES_AT_ONCE], discount)
    if pieces_of.max() > 1:
        _carry(pieces, pieces_of, discount)
    for place, span in places:
        values[span] = padded[place]


def _places(starts: np.ndarray, lengths: np.ndarray) -> list[tuple[slice | np.ndarray, slice]]:
    """The indices of values among the pieces, and in their own array."""
    own = np.cumsum(lengths) - lengths
    if int(lengths.sum()) < _LONGEST_PIECE * lengths.size:
        # Short sequences all at once: a Python step for each would take longer than the sums.
        total = int(lengths.sum())
        return [(np.arange(total) + np.repeat(starts - own, lengths), slice(0, total))]
    return [
        (slice(at, at + length), slice(start, start + length))
        for at, start, length in zip(starts.tolist(), own.tolist(), lengths.tolist())
    ]


def _step(pieces: np.ndarray, discount: float) -> None:
    """The recurrence along the second axis, all pieces at once."""
    columns = np.ascontiguousarray(pieces.T)
    carried = np.empty(columns.shape[1])
    for index in range(columns.shape[0] - 2, -1, -1):
        np.multiply(columns[index + 1], discount, out=carried)
        columns[index] += carried
    pieces[:] = columns.T


def _carry(pieces: np.ndarray, pieces_of: np.ndarray, discount: float) -> None:
    """Add to each piece the discounted sums of the later pieces of its sequence."""
    size = pieces.shape[1]
    sums = pieces[:, 0].copy()
    suffix_sums(sums, pieces_of, discount**size)
    following = np.append(sums[1:], 0.0)
    ends = np.cumsum(pieces_of)[pieces_of > 0] - 1
    following[ends] = 0.0
    powers = discount ** np.arange(size, 0, -1.0)
    pieces += following[:, None] * powers


_AVERAGE, _TEACHER = "kl_policy_base", "teacher_kl"
_NO_WEIGHT = "the mask sums to 0"


def incorporate_kl_penalty(
    logprobs: Sequence[np.ndarray],
    base_logprobs: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    advantages: Sequence[np.ndarray],
    *,
    coef: float,
    discount: float,
    reverse_kl: bool = False,
    datasets: Sequence[str] = (),
    base_field: str = "base_logprobs",
) -> KLPenalty:
    """Add the penalty to advantages.

    Args:
        logprobs: the policy's, one array of shape (T_i,) per sequence, nats.
        base_logprobs: the base policy's, same shapes, nats.
        masks: same shapes; they weight the penalty; log-probabilities of tokens with 0 are ignored.
        advantages: same shapes, floats. They are not changed.
        coef: scales the penalty.
        discount: from 0 to 1; above 0, a token's penalty includes those of later tokens.
        reverse_kl: whether the penalty is that of distillation, without the mean.
        datasets: with `reverse_kl`, the data set of each sequence; none if empty.
        base_field: the name of `base_logprobs` in errors.

    Returns:
        `kl_policy_base`, or `teacher_kl` and `teacher_kl/dataset_<name>`, in nats per action token, and new
        advantages of the same shapes and dtypes. A sequence with an action token that has no finite difference has no
        penalty and no part in the averages: its reason is given, and its advantages are empty, or NaN among columns.
        If an average is undefined, its reason is given and there are no advantages, so that no NaN spreads.

    Raises:
        InvalidField: there is no sequence, the arrays of one do not fit each other, or a number is out of range.
    """
    others = {base_field + "[{}]": base_logprobs, input_field("mask"): masks, input_field("advantages"): advantages}
    check_sequences(logprobs, others)
    if isinstance(advantages, Ragged):
        check_column(advantages.values, 'columns.values["advantages"]', kinds="f")
    else:
        for index, array in enumerate(advantages):
            check_column(array, input_field("advantages").format(index), kinds="f")
    if not math.isfinite(coef):
        raise InvalidField("kl_penalty_coef", f"is {coef}, not finite")
    if not 0 <= discount <= 1:
        raise InvalidField("kl_discount_factor", f"is {discount}, it must lie in [0, 1]")
    if datasets and not reverse_kl:
        raise InvalidField("datasets", "is given without reverse_kl, whose metrics it divides")
    if datasets and len(datasets) != len(logprobs):
        raise InvalidField("datasets", f"has {len(datasets):,} names, the data are {len(logprobs):,}")
    with np.errstate(over="ignore", invalid="ignore"):  # the reason reports it, or it is the caller's own value
        names = datasets if reverse_kl else None
        return _incorporate(logprobs, base_logprobs, masks, advantages, coef, discount, names, base_field)


def _incorporate(
    logprobs: Sequence[np.ndarray],
    base_logprobs: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    advantages: Sequence[np.ndarray],
    coef: float,
    discount: float,
    datasets: Sequence[str] | None,
    base_field: str,
) -> KLPenalty:
    lengths = logprobs.lengths if isinstance(logprobs, Ragged) else np.array([array.size for array in logprobs])
    mask = _joined(masks)
    difference = _joined(logprobs)
    difference -= _joined(base_logprobs)
    difference *= mask
    weight, penalized = _totals(mask, difference)
    why_not: Sequence[str] = ()
    if not math.isfinite(penalized + weight):
        # NaN and infinities survive a mask of 0.
        difference[mask == 0] = 0.0
        why_not = _undefined(logprobs, base_logprobs, mask, difference, lengths, base_field)
        if any(why_not) and not all(why_not):
            left_out = np.repeat([bool(why) for why in why_not], lengths)
            mask[left_out] = difference[left_out] = 0.0
        weight, penalized = _totals(mask, difference)
    average = penalized / weight if weight else math.nan
    if not math.isfinite(average):
        reason = _reason(logprobs, base_logprobs, mask, weight, base_field)
        keys = (_AVERAGE,) if datasets is None else (_TEACHER, *sorted({_dataset_key(name) for name in datasets}))
        return KLPenalty(metrics=Metrics.all_undefined(keys, reason), advantages=())
    if datasets is None:
        metrics = Metrics.of({_AVERAGE: average})
    else:
        of_sets, undefined = _by_dataset(difference, mask, lengths, datasets)
        metrics = Metrics.of({_TEACHER: average, **of_sets}, undefined=undefined)
    penalty = np.subtract(average if datasets is None else 0.0, difference, out=difference)
    penalty *= mask
    penalty *= coef
    if discount > 0:
        suffix_sums(penalty, lengths, discount)
    if not any(why_not):
        return KLPenalty(metrics=metrics, advantages=_added(advantages, penalty, lengths))
    penalty[np.repeat([bool(why) for why in why_not], lengths)] = math.nan
    added = _added(advantages, penalty, lengths)
    if not isinstance(added, Ragged):
        added = tuple(array[:0] if why else array for array, why in zip(added, why_not))
    return KLPenalty(metrics=metrics, advantages=added, without_penalty=tuple(why_not))


def _totals(mask: np.ndarray, difference: np.ndarray) -> tuple[float, float]:
    """The sum of a mask, and of masked differences, both of shape (N,)."""
    weight = total(mask)
    # Masks of both signs may cancel to a sum of few digits, which must then be computed exactly.
    cancels = (
        math.isfinite(weight) and mask.min(initial=0.0) < 0 and total(np.abs(mask)) > MAX_CANCELLATION * abs(weight)
    )
    return (exact_total(mask), exact_total(difference)) if cancels else (weight, total(difference))


def _undefined(
    logprobs: Sequence[np.ndarray],
    base_logprobs: Sequence[np.ndarray],
    mask: np.ndarray,
    difference: np.ndarray,
    lengths: np.ndarray,
    base_field: str,
) -> Sequence[str]:
    """Of each sequence, why it has no penalty; empty if it has."""
    ends = np.cumsum(lengths).tolist()
    bad = ~np.isfinite(difference)
    bad |= ~np.isfinite(mask)
    found = [""] * len(ends)
    for index in np.unique(np.repeat(np.arange(len(ends)), lengths)[bad]).tolist():
        part = slice(ends[index] - int(lengths[index]), ends[index])
        found[index] = _reason([logprobs[index]], [base_logprobs[index]], mask[part], math.nan, base_field)
    return found


def _by_dataset(
    difference: np.ndarray, mask: np.ndarray, lengths: np.ndarray, datasets: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """The mean of each data set by key; and why a set has none, by key.

    Args:
        difference: masked differences of all tokens, shape (N,).
        mask: shape (N,).
        lengths: tokens of each sequence.
        datasets: the set of each sequence; none if empty.
    """
    if not datasets:
        return {}, {}
    names, sets = np.unique(np.array(datasets, object), return_inverse=True)
    of_tokens = np.repeat(sets, lengths)
    sums, weights, counted = (np.bincount(of_tokens, each, len(names)) for each in (difference, mask, mask != 0))
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for name, summed, weight, tokens in zip(names.tolist(), sums.tolist(), weights.tolist(), counted.tolist()):
        value = summed / weight if weight else math.nan
        if math.isfinite(value):
            values[_dataset_key(name)] = value
        else:
            without = _NO_WEIGHT if tokens else NO_ACTION_TOKENS
            undefined[_dataset_key(name)] = BEYOND_FLOAT64 if weight else without
    return values, undefined


def _dataset_key(name: str) -> str:
    return f"{_TEACHER}/dataset_{name}"


def _added(advantages: Sequence[np.ndarray], penalty: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
    """The advantages with the penalty, shape (sum of the lengths,), each rounded once from the float64 sum."""
    if isinstance(advantages, Ragged):
        values = np.add(advantages.values, penalty, dtype=np.float64).astype(advantages.values.dtype)
        return advantages.like(values)
    ends = np.cumsum(lengths).tolist()
    return tuple(
        np.add(old, penalty[end - old.size : end], dtype=np.float64).astype(old.dtype)
        for old, end in zip(advantages, ends)
    )


def _joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    """All values end to end, float64, of shape (N,)."""
    return (
        columns.values.astype(np.float64) if isinstance(columns, Ragged) else np.concatenate(columns, dtype=np.float64)
    )


def _reason(
    logprobs: Sequence[np.ndarray],
    base_logprobs: Sequence[np.ndarray],
    mask: np.ndarray,
    weight: float,
    base_field: str,
) -> str:
    """Why there is no average."""
    counted = np.flatnonzero(mask)
    if not counted.size:
        return NO_ACTION_TOKENS
    candidates = (
        (_joined(logprobs), "log-probabilities", "logprobs"),
        (_joined(base_logprobs), "log-probabilities", base_field),
        (mask, "mask values", ""),
    )
    for values, what, of in candidates:
        if reason := Defects.among(values.take(counted)).reason(counted.size, what, of=of):
            return reason
    return _NO_WEIGHT if weight == 0 else BEYOND_FLOAT64
