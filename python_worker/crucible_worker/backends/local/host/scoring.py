"""Given tokens, and the likeliest in their place: one sequence at a time, so that the result is the same bit for bit.

In a batch, a sequence's numbers depend in their last bits on the shape of its company: another number of rows takes
another path through the matrix kernels. Alone, the shape is the sequence's own, whatever else is asked at the time. On
the embedded models a batch of 64 would be five times as fast; an evaluation that is resumed would not be bit-equal.

The windows of one text, and the choices of one question, are asked for together by every attempt: they are each other's
company, and no one else's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from crucible_bridge.errors import BackendError
from crucible_worker.backends.local.host.loading import LoadedModel

__all__ = ["POSITIONS_AT_ONCE", "likeliest", "score", "score_together"]

POSITIONS_AT_ONCE = 512
"""Positions whose distributions are taken to float64 at a time: 512 of a vocabulary of 150,000 take 0.6 GB. Sequences
are computed together up to so many; a single one may have more."""


def score(
    loaded: LoadedModel, tokens: np.ndarray, targets: np.ndarray, indices: np.ndarray | None = None
) -> np.ndarray:
    """Log-probability of each target given the tokens up to its index.

    Args:
        loaded: the model.
        tokens: shape (n,), int64.
        targets: shape (m,), int64.
        indices: shape (m,), int64: behind which token each target comes. Its own place if None; m is n then.

    Returns:
        Shape (m,), float64, nats: the model's logits, normalized in float64.
    """
    if indices is None:
        return score_together(loaded, [tokens], [targets])[0]
    if tokens.size == 0:
        return np.empty(0, np.float64)
    inputs = torch.tensor(tokens, device=loaded.device).unsqueeze(0)
    return _normalized(_behind(loaded, inputs, indices), targets)


def score_together(
    loaded: LoadedModel, tokens: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Log-probability of each target given the tokens of its sequence up to its own place.

    Args:
        loaded: the model.
        tokens: of each sequence, shape (n,), int64.
        targets: of each sequence, shape (n,), int64.

    Returns:
        Of each sequence, shape (n,), float64, nats, as of `score`.
    """
    sizes = [sequence.size for sequence in tokens]
    if not any(sizes):
        return [np.empty(0, np.float64) for _ in sizes]
    # A causal model sees nothing of what stands behind a token: any token fills a shorter row.
    inputs, wanted = (_filled(sequences, max(sizes)) for sequences in (tokens, targets))
    logits = loaded.model(input_ids=torch.tensor(inputs, device=loaded.device), use_cache=False).logits
    rows = _normalized(logits.flatten(0, 1), wanted.reshape(-1)).reshape(wanted.shape)
    return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def likeliest(loaded: LoadedModel, tokens: np.ndarray) -> np.ndarray:
    """The likeliest token behind each; of several it is the one with the lowest id.

    Args:
        loaded: the model.
        tokens: shape (n,), int64.

    Returns:
        Shape (n,), int64.

    Raises:
        BackendError: the greatest logit somewhere is not finite (LOGITS_NOT_FINITE).
    """
    if tokens.size == 0:
        return np.empty(0, np.int64)
    inputs = torch.tensor(tokens, device=loaded.device).unsqueeze(0)
    logits = loaded.model(input_ids=inputs, use_cache=False).logits[0]
    # As they are: a wider type orders them no otherwise. What is behind the vocabulary is padding, and no token.
    logits = logits[:, : loaded.vocabulary]
    if not logits.amax(1).isfinite().all():
        raise BackendError("the model's logits are not finite", reason="LOGITS_NOT_FINITE", retryable=False)
    return logits.argmax(1).cpu().numpy()


def _filled(sequences: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Sequences as rows of one width."""
    return np.stack([np.pad(sequence, (0, width - sequence.size)) for sequence in sequences])


def _normalized(logits: torch.Tensor, targets: np.ndarray) -> np.ndarray:
    """Log-probability of each target by its row of logits, shape (m,)."""
    wanted = torch.tensor(targets, device=logits.device).unsqueeze(1)
    parts: list[torch.Tensor] = []
    for start in range(0, len(targets), POSITIONS_AT_ONCE):
        part = slice(start, start + POSITIONS_AT_ONCE)
        distribution = logits[part].double()
        parts.append(distribution.gather(1, wanted[part]).squeeze(1) - distribution.logsumexp(1))
    return torch.cat(parts).cpu().numpy()


def _behind(loaded: LoadedModel, inputs: torch.Tensor, indices: np.ndarray) -> torch.Tensor:
    """Logits behind these tokens alone, shape (m, vocabulary): of a long prompt, the last few are wanted as a rule."""
    first = int(indices.min())
    kept = {"logits_to_keep": inputs.shape[1] - first} if "logits_to_keep" in loaded.arguments else {}
    logits = loaded.model(input_ids=inputs, use_cache=False, **kept).logits[0]
    rows = torch.tensor(indices - (inputs.shape[1] - logits.shape[0]), device=loaded.device)
    return logits[rows]
