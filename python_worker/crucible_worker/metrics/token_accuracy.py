"""How often a model's likeliest token is the next token, over the tokens of many samples.

r_i of the n_i tokens of sample i are right; N is the sum of n_i over the C samples that have tokens:

    next_token_accuracy         p = sum(r_i) / N
    next_token_accuracy_stderr  sqrt(C / (C - 1) * sum((r_i - p n_i)^2) / N^2), clustered by sample, as tokens of one
                                are not independent (see `crucible_worker.metrics.accuracy`)
    sample_accuracy             share of the C samples that are right as a whole
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from crucible_bridge.types import Metrics

__all__ = ["TOKEN_ACCURACY_KEYS", "TokenHits", "token_accuracy"]

_ACCURACY, _STDERR, _SAMPLES = "next_token_accuracy", "next_token_accuracy_stderr", "sample_accuracy"

TOKEN_ACCURACY_KEYS = (_ACCURACY, _STDERR, _SAMPLES)
"""Every key, in the order of a report."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenHits:
    """The counts of one sample."""

    tokens: int
    """Tokens that are measured."""
    right: int
    """Those that the model considers the likeliest."""
    whole: bool
    """Whether the sample as a whole is right."""


def token_accuracy(hits: Sequence[TokenHits]) -> Metrics:
    """Accuracy by token and by sample.

    Args:
        hits: of each sample that was measured.

    Returns:
        The keys of `TOKEN_ACCURACY_KEYS`, fractions of 1; undefined if no token was measured, the standard error
        also if only one sample was measured.
    """
    measured = [each for each in hits if each.tokens]
    if not measured:
        return Metrics.all_undefined(TOKEN_ACCURACY_KEYS, "no token has weight" if hits else "no sample was scored")
    tokens = sum(each.tokens for each in measured)
    share = sum(each.right for each in measured) / tokens
    whole = sum(each.whole for each in measured) / len(measured)
    if len(measured) == 1:
        return Metrics.of({_ACCURACY: share, _SAMPLES: whole}, {_STDERR: "only one sample was scored"})
    squares = math.fsum((each.right - share * each.tokens) ** 2 for each in measured)
    error = math.sqrt(len(measured) / (len(measured) - 1) * squares) / tokens
    return Metrics.of({_ACCURACY: share, _STDERR: error, _SAMPLES: whole})
