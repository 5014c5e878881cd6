"""Chooses the next token of each row, only from its own logits, parameters and random numbers."""

from __future__ import annotations

import dataclasses
import secrets

import numpy as np
import torch

__all__ = ["Choice", "Chooser", "choose"]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A token that was chosen."""

    token: int
    """Its id."""
    logprob: float
    """Its log-probability under the unmodified distribution, nats."""


class Chooser:
    """How one row chooses.

    Args:
        temperature: 0 is greedy.
        top_p: nucleus mass in (0, 1], of the tokens that `top_k` keeps.
        top_k: number of most likely tokens that are kept; all if None.
        seed: sample `index` of a prompt draws from (seed, index); from the system's entropy if None.
        index: of the sample among several.
    """

    def __init__(self, *, temperature: float, top_p: float, top_k: int | None, seed: int | None, index: int) -> None:
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self._random = np.random.default_rng([secrets.randbits(128) if seed is None else seed, index])

    def draw(self, logits: torch.Tensor) -> int:
        """Draw a token from logits of shape (vocabulary,) after temperature, top_k and top_p, in this order."""
        # The maximum is subtracted first, so that small temperatures cannot overflow. Float64, as a nucleus sums over
        # the vocabulary.
        scaled = (logits - logits.max()).double() / self.temperature
        tokens = None
        if self.top_k is not None and self.top_k < len(scaled):
            scaled, tokens = scaled.topk(self.top_k)
        elif self.top_p < 1:
            scaled, tokens = scaled.sort(descending=True, stable=True)
        probabilities = scaled.softmax(0)
        if self.top_p < 1:
            if tokens is None:  # top_k kept all tokens: not sorted yet
                probabilities, tokens = probabilities.sort(descending=True, stable=True)
            before = probabilities.cumsum(0) - probabilities
            probabilities = probabilities * (before < self.top_p)
        cumulative = probabilities.cumsum(0)
        point = cumulative[-1] * self._random.random()
        index = int(torch.searchsorted(cumulative, point, right=True))
        # Rounding can put the point on the total; then the last token with any mass is chosen.
        index = min(index, int(probabilities.nonzero()[-1]))
        return index if tokens is None else int(tokens[index])


def choose(logits: torch.Tensor, choosers: list[Chooser]) -> list[Choice | None]:
    """Choose a token for every row.

    Args:
        logits: shape (rows, vocabulary), of any floating type.
        choosers: one per row.

    Returns:
        One choice per row; None if its logits are not a distribution (NaN or infinite).
    """
    logits = logits.float()
    normalizers = logits.logsumexp(1)
    best = logits.argmax(1).tolist()
    tokens = [
        None if not finite else chooser.draw(row) if chooser.temperature > 0 else greedy
        for chooser, row, greedy, finite in zip(choosers, logits, best, normalizers.isfinite().tolist())
    ]
    indices = torch.tensor([[token or 0] for token in tokens], device=logits.device)
    logprobs = (logits.gather(1, indices).squeeze(1) - normalizers).tolist()
    return [None if token is None else Choice(token, logprob) for token, logprob in zip(tokens, logprobs)]
