"""Mean negative log-likelihood of weighted target tokens.

    nll = -sum(weights * logprobs) / sum(weights)        over the tokens of all data, nats per unit of weight
    perplexity = exp(nll)

One mean over all tokens, not a mean of means. The formula is tinker-cookbook's `compute_mean_nll`, which sums in
float32; here products and sums are float64. There are two ways to compute it:

- `mean_nll` takes a whole batch at once, fast: see `crucible_worker.metrics.sequences` for how exact its sums are.
- `nll_parts` and `combine` take one datum at a time and combine them, at once or much later, with sums that are
  exact (`math.fsum`): neither order nor batching changes a bit of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from crucible_bridge.types import MeanNLL, Metrics
from crucible_worker.metrics.sequences import (
    BEYOND_FLOAT64,
    BLOCK_TOKENS,
    MAX_CANCELLATION,
    Defects,
    blocks,
    check_sequences,
    dot,
    exact_sum,
    share,
)

__all__ = ["NLLParts", "combine", "mean_nll", "nll_parts"]

_NLL, _PERPLEXITY = "nll", "perplexity"
_ONES = np.ones(BLOCK_TOKENS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NLLParts:
    """What one datum adds to a mean negative log-likelihood. Tokens of weight 0 are ignored."""

    weighted_logprob_sum: float = 0.0
    """Sum of weights * logprobs, nats; not finite if a part of it is not."""
    weight_sum: float = 0.0
    """Sum of the weights."""
    tokens: int = 0
    """Tokens whose weight is not 0."""
    nan: int = 0
    """Log-probabilities among them that are NaN."""
    minus_inf: int = 0
    """Log-probabilities among them that are -inf: tokens that the model considers impossible."""
    plus_inf: int = 0
    """Log-probabilities among them that are +inf, which no distribution has."""
    bad_weights: int = 0
    """Weights that are NaN or infinite."""

    @property
    def undefined(self) -> str:
        """Why there is no mean; empty if there is one."""
        defects = Defects(nan=self.nan, minus_inf=self.minus_inf, plus_inf=self.plus_inf)
        if reason := defects.reason(self.tokens):
            return reason
        if self.bad_weights:
            return share(self.bad_weights, self.tokens, "weights", "not finite")
        if self.tokens == 0:
            return "no token has weight"
        if self.weight_sum == 0:
            return "the weights sum to 0"
        return "" if math.isfinite(self.nll) else BEYOND_FLOAT64

    @property
    def nll(self) -> float:
        """The mean, nats per unit of weight; NaN if the weights sum to 0. Check `undefined` first."""
        return -self.weighted_logprob_sum / self.weight_sum if self.weight_sum else math.nan


def mean_nll(logprobs: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> MeanNLL:
    """Mean negative log-likelihood over all data.

    Args:
        logprobs: one array of shape (T_i,) per datum, nats.
        weights: same shapes; a token counts by its weight; a token of weight 0 is ignored, whatever its value.

    Returns:
        `nll` in nats per unit of weight and `perplexity`, or undefined with the reason; and the sum of the weights,
        which is not finite if one of them is not.

    Raises:
        InvalidField: there is no datum, or the arrays of one do not fit each other.
    """
    check_sequences(logprobs, {"weights[{}]": weights}, field="logprobs[{}]", data="logprobs")
    if (fast := _fast_sums(logprobs, weights)) is not None:
        nll, total_weight = -fast[0] / fast[1], fast[1]
        if math.isfinite(nll):
            return _with_perplexity(nll, total_weight)
    whole = _exact_parts(logprobs, weights)
    if whole.undefined:
        metrics = Metrics.all_undefined((_NLL, _PERPLEXITY), whole.undefined)
        return MeanNLL(metrics=metrics, total_weight=whole.weight_sum)
    return _with_perplexity(whole.nll, whole.weight_sum)


def nll_parts(logprobs: np.ndarray, weights: np.ndarray) -> NLLParts:
    """One datum's part: both arrays of shape (T,), log-probabilities in nats."""
    weight, logprob = _weighted(logprobs, weights)
    # `undefined` reports an overflow; the product of float32 values is exact.
    with np.errstate(over="ignore", invalid="ignore"):
        products = weight * logprob
    sums = {"weighted_logprob_sum": exact_sum(products.tolist()), "weight_sum": exact_sum(weight.tolist())}
    return dataclasses.replace(_counts(weight, logprob), **sums)


def _weighted(logprobs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and log-probabilities of the tokens that have weight, float64."""
    counted = np.flatnonzero(weights)  # NaN counts: it is not 0
    return weights.take(counted).astype(np.float64), logprobs.take(counted).astype(np.float64)


def _counts(weight: np.ndarray, logprob: np.ndarray) -> NLLParts:
    """The counts, without the sums."""
    return NLLParts(
        tokens=int(weight.size),
        nan=int(np.count_nonzero(np.isnan(logprob))),
        minus_inf=int(np.count_nonzero(np.isneginf(logprob))),
        plus_inf=int(np.count_nonzero(np.isposinf(logprob))),
        bad_weights=int(np.count_nonzero(~np.isfinite(weight))),
    )


def combine(parts: Iterable[NLLParts]) -> Metrics:
    """The mean over several data, from their parts in the data set's order.

    Returns:
        `nll` in nats per unit of weight, or undefined with the reason.
    """
    whole = _joined(parts)
    if whole.undefined:
        return Metrics.all_undefined((_NLL,), whole.undefined)
    return Metrics.of({_NLL: whole.nll})


def _joined(parts: Iterable[NLLParts]) -> NLLParts:
    parts = tuple(parts)
    return NLLParts(
        weighted_logprob_sum=exact_sum(part.weighted_logprob_sum for part in parts),
        weight_sum=exact_sum(part.weight_sum for part in parts),
        tokens=sum(part.tokens for part in parts),
        nan=sum(part.nan for part in parts),
        minus_inf=sum(part.minus_inf for part in parts),
        plus_inf=sum(part.plus_inf for part in parts),
        bad_weights=sum(part.bad_weights for part in parts),
    )


def _exact_parts(logprobs: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> NLLParts:
    """The parts of a whole batch, each sum rounded once; in blocks, as there may be as many data as tokens."""

    def walk() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (_weighted(*each) for each in blocks(logprobs, weights, dtypes=(np.float64, np.float64)))

    with np.errstate(over="ignore", invalid="ignore"):  # `undefined` reports it
        products = exact_sum(itertools.chain.from_iterable((weight * logprob).tolist() for weight, logprob in walk()))
    return dataclasses.replace(
        _joined(_counts(*each) for each in walk()),
        weighted_logprob_sum=products,
        weight_sum=exact_sum(itertools.chain.from_iterable(weight.tolist() for weight, _ in walk())),
    )


def _with_perplexity(nll: float, total_weight: float) -> MeanNLL:
    try:
        metrics = Metrics.of({_NLL: nll, _PERPLEXITY: math.exp(nll)})
    except OverflowError:
        metrics = Metrics.of({_NLL: nll}, {_PERPLEXITY: f"exp({nll:g}) is beyond float64"})
    return MeanNLL(metrics=metrics, total_weight=total_weight)


def _fast_sums(logprobs: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> tuple[float, float] | None:
    """Sums of weights * logprobs and of weights; None if exact sums are needed."""
    weighted_logprobs, totals, magnitudes = [], [], []
    with np.errstate(over="ignore", invalid="ignore"):  # the test for finite sums finds it
        for logprob, weight in blocks(logprobs, weights, dtypes=(np.float64, np.float64)):
            # A product with ones is summed in half the time of a sum.
            weighted, total = dot(logprob, weight), dot(weight, _ONES[: weight.size])
            if not math.isfinite(weighted):
                # NaN and infinities survive a weight of 0.
                counted = np.flatnonzero(weight)
                weighted = dot(logprob.take(counted), weight.take(counted))
            if not math.isfinite(weighted + total):
                return None
            weighted_logprobs.append(weighted)
            totals.append(total)
            magnitudes.append(total if weight.min() >= 0 else dot(np.abs(weight), _ONES[: weight.size]))
    total_weight = exact_sum(totals)
    # Weights of both signs may cancel to a sum of few digits, which must then be computed exactly.
    if not total_weight or exact_sum(magnitudes) > MAX_CANCELLATION * abs(total_weight):
        return None
    return exact_sum(weighted_logprobs), total_weight
