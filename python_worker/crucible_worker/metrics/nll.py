"""Mean negative log-likelihood of weighted target tokens.

    nll = -sum(weights * logprobs) / sum(weights)        over the tokens of all data, nats per unit of weight

One mean over all tokens, not a mean of means. The formula is tinker-cookbook's `compute_mean_nll`, whose sums are
float32; here products are float64 and sums are exact (`math.fsum`), so neither order nor batching changes a bit of the
parts. A sum over many data is kept as one `NLLParts` per datum and put together by `combine`, at once or much later:
both give the same number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics

__all__ = ["NLLParts", "combine", "mean_nll", "nll_parts"]

_NLL = "nll"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NLLParts:
    """What one datum adds to a mean negative log-likelihood. Tokens of weight 0 have no part in it."""

    weighted_logprob_sum: float = 0.0
    """Sum of weights * logprobs, nats; not finite where a part of it is not."""
    weight_sum: float = 0.0
    """Sum of the weights."""
    tokens: int = 0
    """Tokens whose weight is not 0."""
    nan: int = 0
    """Log-probabilities among them that are NaN."""
    minus_inf: int = 0
    """Log-probabilities among them that are -inf: tokens that the model holds for impossible."""
    plus_inf: int = 0
    """Log-probabilities among them that are +inf, which no distribution has."""
    bad_weights: int = 0
    """Weights that are NaN or infinite."""

    @property
    def undefined(self) -> str:
        """Why there is no mean; empty where there is one."""
        for count, what in ((self.nan, "NaN"), (self.minus_inf, "-inf"), (self.plus_inf, "+inf")):
            if count:
                return f"{count:,} of {self.tokens:,} log-probabilities {'is' if count == 1 else 'are'} {what}"
        if self.bad_weights:
            return (
                f"{self.bad_weights:,} of {self.tokens:,} weights {'is' if self.bad_weights == 1 else 'are'} not finite"
            )
        if self.tokens == 0:
            return "no token has weight"
        if self.weight_sum == 0:
            return "the weights sum to 0"
        return "" if math.isfinite(self.nll) else "the sum is beyond float64"

    @property
    def nll(self) -> float:
        """The mean, nats per unit of weight; NaN where the weights sum to 0. Look at `undefined` first."""
        return -self.weighted_logprob_sum / self.weight_sum if self.weight_sum else math.nan


def mean_nll(logprobs: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> Metrics:
    """Mean negative log-likelihood over all data.

    Args:
        logprobs: one array of shape (T_i,) per datum, nats.
        weights: same shapes; a token counts by its weight, and not at all where that is 0, whatever its value.

    Returns:
        `nll` in nats per unit of weight, or undefined with the reason.

    Raises:
        InvalidField: there is no datum, or the arrays of one differ in shape.
    """
    if not logprobs:
        raise InvalidField("logprobs", "is empty")
    if len(weights) != len(logprobs):
        raise InvalidField("weights", f"has {len(weights)} tensors for {len(logprobs)} data")
    for index, (lp, w) in enumerate(zip(logprobs, weights, strict=True)):
        if lp.shape != w.shape:
            raise InvalidField(f"weights[{index}]", f"has shape {w.shape}, logprobs {lp.shape}")
    return combine(nll_parts(lp, w) for lp, w in zip(logprobs, weights, strict=True))


def nll_parts(logprobs: np.ndarray, weights: np.ndarray) -> NLLParts:
    """One datum's part: both arrays of shape (T,), log-probabilities in nats."""
    counted = np.flatnonzero(weights)  # NaN counts: it is not 0
    weight = weights.take(counted).astype(np.float64)
    logprob = logprobs.take(counted).astype(np.float64)
    # An overflow is told by `undefined`; the product of float32 values is exact.
    with np.errstate(over="ignore", invalid="ignore"):
        products = weight * logprob
    return NLLParts(
        weighted_logprob_sum=_exact_sum(products.tolist()),
        weight_sum=_exact_sum(weight.tolist()),
        tokens=int(counted.size),
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
    parts = tuple(parts)
    whole = NLLParts(
        weighted_logprob_sum=_exact_sum(part.weighted_logprob_sum for part in parts),
        weight_sum=_exact_sum(part.weight_sum for part in parts),
        tokens=sum(part.tokens for part in parts),
        nan=sum(part.nan for part in parts),
        minus_inf=sum(part.minus_inf for part in parts),
        plus_inf=sum(part.plus_inf for part in parts),
        bad_weights=sum(part.bad_weights for part in parts),
    )
    if whole.undefined:
        return Metrics.all_undefined((_NLL,), whole.undefined)
    return Metrics.of({_NLL: whole.nll})


def _exact_sum(values: Iterable[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        # Finite values that leave float64 on the way, or infinities of both signs: there is no such sum.
        return math.nan
