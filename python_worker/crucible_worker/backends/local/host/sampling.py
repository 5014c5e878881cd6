"""Chooses the next token of each row, only from its own logits, parameters and random numbers."""

from __future__ import annotations

import dataclasses
import secrets
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from crucible_worker.backends.local.host.distributions import likeliest

__all__ = ["Choice", "Chooser", "choose"]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A token that was chosen."""

    token: int
    """Its id."""
    logprob: float
    """Its log-probability under the unmodified distribution, nats."""
    top: tuple[np.ndarray, np.ndarray] | None = None
    """The likeliest tokens in its place, and their log-probabilities, shape (k,); None if they are not wanted."""


class Chooser:
    """How one row chooses.

    Args:
        temperature: 0 is greedy.
        top_p: nucleus mass in (0, 1], of the tokens that `top_k` keeps.
        top_k: number of most likely tokens that are kept; all if None.
        seed: sample `index` of a prompt draws from (seed, index); from the system's entropy if None.
        index: of the sample among several.
        top: number of the likeliest tokens that are reported with each chosen one.
    """

    def __init__(
        self, *, temperature: float, top_p: float, top_k: int | None, seed: int | None, index: int, top: int = 0
    ) -> None:
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.top = top
        self._random = np.random.default_rng([secrets.randbits(128) if seed is None else seed, index])

    def draw(self, logits: torch.Tensor) -> int:
        """Draw a token from logits of shape (vocabulary,) after temperature, top_k and top_p, in this order."""
        return _draw(logits[None], [self])[0]

    def point(self) -> float:
        """The next random number in [0, 1)."""
        return self._random.random()

    def kept(self, vocabulary: int) -> int | None:
        """Number of tokens that `top_k` keeps; None if it keeps all."""
        return self.top_k if self.top_k is not None and self.top_k < vocabulary else None


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
    tokens: list[int | None] = [
        token if finite else None for token, finite in zip(logits.argmax(1).tolist(), normalizers.isfinite().tolist())
    ]
    # Rows that are computed alike are computed together: on a GPU, one after the other takes longer than the model.
    alike: defaultdict[tuple[int | None, bool], list[int]] = defaultdict(list)
    for row, (token, chooser) in enumerate(zip(tokens, choosers)):
        if token is not None and chooser.temperature > 0:
            alike[chooser.kept(logits.shape[1]), chooser.top_p < 1].append(row)
    for rows in alike.values():
        some = logits if len(rows) == len(logits) else logits[torch.tensor(rows, device=logits.device)]
        for row, token in zip(rows, _draw(some, [choosers[row] for row in rows])):
            tokens[row] = token
    indices = torch.tensor([[token or 0] for token in tokens], device=logits.device)
    logprobs = (logits.gather(1, indices).squeeze(1) - normalizers).tolist()
    tops = _tops(logits, normalizers, choosers)
    return [
        None if token is None else Choice(token, logprob, tops.get(row))
        for row, (token, logprob) in enumerate(zip(tokens, logprobs))
    ]


def _tops(
    logits: torch.Tensor, normalizers: torch.Tensor, choosers: Sequence[Chooser]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The likeliest tokens, and their log-probabilities, of each row that reports them and has a distribution."""
    finite = normalizers.isfinite().tolist()
    rows = [row for row, chooser in enumerate(choosers) if chooser.top and finite[row]]
    if not rows:
        return {}
    chosen = torch.tensor(rows, device=logits.device)
    values, tokens = likeliest(logits[chosen], max(choosers[row].top for row in rows))
    ids, logprobs = tokens.cpu().numpy(), (values - normalizers[chosen, None]).cpu().numpy()
    tops: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for index, row in enumerate(rows):
        count = choosers[row].top
        tops[row] = ids[index, :count], logprobs[index, :count]
    return tops


def _draw(logits: torch.Tensor, choosers: Sequence[Chooser]) -> list[int]:
    """Draw a token for every row of logits; the choosers keep equally many tokens, and all or none has a nucleus."""
    first = choosers[0]
    given = [[chooser.temperature, chooser.top_p, chooser.point()] for chooser in choosers]
    temperature, top_p, point = torch.tensor(given, dtype=torch.float64, device=logits.device).split(1, dim=1)
    # The maximum is subtracted first, so that small temperatures cannot overflow. Float64, as a nucleus sums over the
    # vocabulary.
    scaled = (logits - logits.amax(1, keepdim=True)).double() / temperature
    tokens = None
    if (kept := first.kept(logits.shape[1])) is not None:
        scaled, tokens = scaled.topk(kept)
    elif first.top_p < 1:
        scaled, tokens = scaled.sort(descending=True, stable=True)
    probabilities = scaled.softmax(1)
    if first.top_p < 1:
        before = probabilities.cumsum(1) - probabilities
        probabilities = probabilities * (before < top_p)
    cumulative = probabilities.cumsum(1)
    indices = torch.searchsorted(cumulative, cumulative[:, -1:] * point, right=True)
    # Rounding can put the point on the total; then the last token with any mass is chosen.
    places = torch.arange(cumulative.shape[1], device=logits.device)
    indices = indices.minimum(torch.where(probabilities > 0, places, 0).amax(1, keepdim=True))
    return (indices if tokens is None else tokens.gather(1, indices)).squeeze(1).tolist()
