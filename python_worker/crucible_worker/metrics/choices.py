"""Which of several choices a model considers the likeliest, and how sure it is, by log-probabilities of their tokens.

    sum         s_i = sum of the log-probabilities of choice i's tokens, nats
    per token   s_i / (its tokens)
    per byte    s_i / (its UTF-8 bytes)

The likeliest choice is the one with the greatest value. If several share it, each is equally likely to be chosen:
the score is the share of right ones among them, which is the expectation of a random choice. The
probability of the right choices is that of the softmax of the sums, given that the continuation is one of them.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Collection, Sequence

import numpy as np

from crucible_worker.metrics.sums import exact_sum

__all__ = ["ChoiceLikelihood", "Measure", "likeliest", "right_probability", "right_share"]


class Measure(enum.StrEnum):
    """How log-probabilities of choices of different lengths are compared."""

    SUM = "sum"
    """Unchanged: this favours short choices."""
    PER_TOKEN = "per_token"
    """Divided by the number of tokens, which depends on the tokenizer."""
    PER_BYTE = "per_byte"
    """Divided by the number of UTF-8 bytes, which does not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLikelihood:
    """The log-probability of one choice."""

    logprob: float
    """Sum over all its tokens, nats; -inf if the model considers one of them impossible."""
    tokens: int
    """Its tokens, at least one."""
    bytes: int | None
    """Its UTF-8 bytes, at least one; None if it is given in tokens."""

    @classmethod
    def of(cls, logprobs: np.ndarray, text: str | None) -> ChoiceLikelihood:
        """From log-probabilities of shape (tokens,) without NaN and +inf, and the choice's text if it has one."""
        size = None if text is None else len(text.encode("utf-8", "surrogatepass"))
        return cls(logprob=exact_sum(logprobs.tolist()), tokens=logprobs.size, bytes=size)

    def by(self, measure: Measure) -> float | None:
        """The value that is compared; None if the choice has no bytes to count."""
        match measure:
            case Measure.SUM:
                return self.logprob
            case Measure.PER_TOKEN:
                return self.logprob / self.tokens
            case Measure.PER_BYTE:
                return None if self.bytes is None else self.logprob / self.bytes


def likeliest(choices: Sequence[ChoiceLikelihood], measure: Measure) -> tuple[int, ...] | None:
    """Indices of the choices with the greatest value, in order.

    Returns:
        None if that is unknown: every choice is impossible, or one has no bytes to count.
    """
    values = [choice.by(measure) for choice in choices]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or max(known) == -math.inf:
        return None
    return tuple(index for index, value in enumerate(known) if value == max(known))


def right_share(taken: Sequence[int], right: Collection[int]) -> float:
    """Share of right ones among the chosen ones, 0 to 1."""
    return sum(index in right for index in taken) / len(taken)


def right_probability(choices: Sequence[ChoiceLikelihood], right: Collection[int]) -> float | None:
    """Probability of the right choices together, given that it is one of all; None if every one is impossible."""
    greatest = max(choice.logprob for choice in choices)
    if greatest == -math.inf:
        return None
    odds = [math.exp(choice.logprob - greatest) for choice in choices]
    return min(1.0, math.fsum(odd for index, odd in enumerate(odds) if index in right) / math.fsum(odds))
