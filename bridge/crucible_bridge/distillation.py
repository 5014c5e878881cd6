"""From what a teacher finds likeliest to the data of a cross entropy, as tinker-cookbook's SDFT builds them.

found = bridge.models.compute_logprobs(teacher, [LogprobsItem(prompt=shown, continuation=answer)], top_k=20)
target = distillation_datum(datum, found.sequences[0])
"""

from __future__ import annotations

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, SequenceLogprobs

__all__ = ["SKIPPED_TOKENS", "distillation_datum"]

SKIPPED_TOKENS = 3
"""How many of the first tokens of an answer have no weight, unless the caller names another number."""


def distillation_datum(
    datum: Datum,
    measured: SequenceLogprobs,
    *,
    skip_first_n_tokens: int = SKIPPED_TOKENS,
    vocab_size: int | None = None,
) -> Datum:
    """Give a datum the likeliest tokens of a teacher as its targets.

    Args:
        datum: the student's, with "mask": above 0 for each target that the student wrote, shape (n,).
        measured: the teacher's answer with `top_k`. Its row i belongs to the i-th target from the first one of the mask
            on, observations of an environment included. Targets after the last row have no weight.
        skip_first_n_tokens: how many of the first targets of the mask have no weight.
        vocab_size: tokens from this id on are left out, for a teacher with more tokens than the student.

    Returns:
        The same input with "target_tokens", int64 of shape (n, k), and "weights", float32 of the same shape. The
        weights of a target sum to 1, or are 0.

    Raises:
        InvalidField: the datum has no mask of its input's length, or `measured` has a problem or no likeliest tokens.
    """
    mask = _mask(datum)
    tokens, weights = _targets(measured, vocab_size)
    written = np.flatnonzero(mask > 0)
    rows = written - (written[0] if written.size else 0)
    kept = rows < len(tokens)
    kept[:skip_first_n_tokens] = False
    targets = np.zeros((mask.size, tokens.shape[1]), np.int64)
    shares = np.zeros(targets.shape, np.float32)
    targets[written[kept]], shares[written[kept]] = tokens[rows[kept]], weights[rows[kept]]
    return Datum(model_input=datum.model_input, loss_fn_inputs={"target_tokens": targets, "weights": shares})


def _mask(datum: Datum) -> np.ndarray:
    field = 'datum.loss_fn_inputs["mask"]'
    if "mask" not in datum.loss_fn_inputs:
        raise InvalidField(field, "is missing: it is above 0 for each target that the student wrote")
    mask = floats(datum.loss_fn_inputs["mask"], field)
    length = datum.model_input.tokens().size
    if mask.shape != (length,):
        raise InvalidField(field, f"has the shape {mask.shape}, not that of the input, ({length},)")
    return mask


def _targets(measured: SequenceLogprobs, vocab_size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and their probabilities, shape (rows, k); those that are left out are 0, after the others."""
    if measured.problem is not None:
        raise InvalidField("measured", f"has a problem: {measured.problem.message}")
    if measured.top_tokens is None or measured.top_logprobs is None:
        raise InvalidField("measured", "has no likeliest tokens: set top_k of compute_logprobs")
    tokens = measured.top_tokens.astype(np.int64)
    known = tokens >= 0 if vocab_size is None else (tokens >= 0) & (tokens < vocab_size)
    order = np.argsort(~known, axis=1, kind="stable")
    logprobs = np.where(known, measured.top_logprobs, -np.inf)
    best = logprobs.max(axis=1, keepdims=True, initial=-np.inf)
    # Of the best: e**-900 is 0 in float64. A row without a token has no best one.
    weights = np.exp(logprobs - np.where(np.isfinite(best), best, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.take_along_axis(np.where(known, tokens, 0), order, 1), np.take_along_axis(weights, order, 1)
