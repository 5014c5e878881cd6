"""Which of several choices a model holds for the likeliest, and how sure it is, from log-probabilities of their tokens.

    sum         s_i = sum of the log-probabilities of choice i's tokens, nats
    per token   s_i / (its tokens)
    per byte    s_i / (its UTF-8 bytes)

The likeliest choice is the one with the greatest value. Where several share it, each of them is as likely to be taken:
the score is the share of right ones among them, whatever their order, in expectation that of drawing one. The
probability of the right choices is that of the softmax of the sums: of the continuations given that it is one of them.
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
    """As they are: short choices have it easier."""
    PER_TOKEN = "per_token"
    """Over the number of tokens, which depends on the tokenizer."""
    PER_BYTE = "per_byte"
    """Over the number of UTF-8 bytes, which does not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLikelihood:
    """What a model thinks of one choice."""

    logprob: float
    """Of all its tokens together, nats; -inf where the model holds one of them for impossible."""
    tokens: int
    """Its tokens, at least one."""
    bytes: int | None
    """Its UTF-8 bytes, at least one; None where it is given in tokens."""

    @classmethod
    def of(cls, logprobs: np.ndarray, text: str | None) -> ChoiceLikelihood:
        """Of log-probabilities of shape (tokens,) without NaN and +inf, and the choice's text, if it has one."""
        size = None if text is None else len(text.encode("utf-8", "surrogatepass"))
        return cls(logprob=exact_sum(logprobs.tolist()), tokens=logprobs.size, bytes=size)

    def by(self, measure: Measure) -> float | None:
        """The value that is compared; None where the choice has no bytes to count."""
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
        None where that cannot be told: every choice is impossible, or one has no bytes to count.
    """
    values = [choice.by(measure) for choice in choices]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or max(known) == -math.inf:
        return None
    return tuple(index for index, value in enumerate(known) if value == max(known))


def right_share(taken: Sequence[int], right: Collection[int]) -> float:
    """Share of right ones among the choices that are taken, 0 to 1."""
    return sum(index in right for index in taken) / len(taken)


def right_probability(choices: Sequence[ChoiceLikelihood], right: Collection[int]) -> float | None:
    """Probability of the right choices together, given that it is one of all; None where every one is impossible."""
    greatest = max(choice.logprob for choice in choices)
    if greatest == -math.inf:
        return None
    odds = [math.exp(choice.logprob - greatest) for choice in choices]
    return min(1.0, math.fsum(odd for index, odd in enumerate(odds) if index in right) / math.fsum(odds))
