"""Log-probabilities of given tokens: one sequence at a time, so that the result is the same bit for bit.

In a batch, a sequence's numbers depend in their last bits on the shape of its company: another number of rows takes
another path through the matrix kernels. Alone, the shape is the sequence's own, whatever else is asked at the time. On
the embedded models a batch of 64 would be five times as fast; an evaluation that is resumed would not be bit-equal.
"""

from __future__ import annotations

import numpy as np
import torch

from crucible_worker.backends.local.host.loading import LoadedModel

__all__ = ["score"]

_POSITIONS_AT_ONCE = 512
"""Positions whose distributions are taken to float64 at a time: 512 of a vocabulary of 150,000 take 0.6 GB."""


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
    if tokens.size == 0:
        return np.empty(0, np.float64)
    inputs = torch.tensor(tokens, device=loaded.device).unsqueeze(0)
    wanted = torch.tensor(targets, device=loaded.device).unsqueeze(1)
    if indices is None:
        logits = loaded.model(input_ids=inputs, use_cache=False).logits[0]
    else:
        logits = _behind(loaded, inputs, indices)
    parts: list[torch.Tensor] = []
    for start in range(0, len(targets), _POSITIONS_AT_ONCE):
        part = slice(start, start + _POSITIONS_AT_ONCE)
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
