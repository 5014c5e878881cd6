"""Which tokens a model considers the likeliest in place of a prompt's own."""

from __future__ import annotations

import numpy as np

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelInput
from crucible_worker.backends.base import Model

__all__ = ["argmax_tokens"]


async def argmax_tokens(model: Model, tokens: np.ndarray) -> np.ndarray:
    """Likeliest token after each of these except the last, given all before it.

    Args:
        model: what is called.
        tokens: shape (n,), int64, n at least 1.

    Returns:
        Shape (n - 1,), int64; `UNKNOWN_TOKEN` where it differs from the next one, and no more is known.

    Raises:
        FailedPrecondition: its service does not report them (NO_GREEDY_TOKENS).
        BackendError: there is no answer, or none that makes sense.
    """
    answer = await model.compute_argmax(ModelInput.of(tokens))
    if len(answer) != tokens.size:
        raise _nonsense(f"compute_argmax answered {tokens.size:,} tokens with {len(answer):,}")
    known = [token for token in answer[1:] if token is not None]
    if len(known) != tokens.size - 1:
        raise _nonsense(f"compute_argmax left out {tokens.size - 1 - len(known):,} tokens beside the first")
    return np.array(known, np.int64)


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
