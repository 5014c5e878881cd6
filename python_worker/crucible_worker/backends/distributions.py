"""What is wanted of a model's distributions over its tokens, and what they are: columns, one row for each token.

    Wanted(last=2, top_k=3)
    Measured(logprobs=[-0.2, -1.5], top_tokens=[[5, 9, 2], [1, 5, 3]], top_logprobs=[[-0.2, ...], [...]])

Row i of so many belongs to the token that is as many places before the prompt's end.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.reasons import Reason

__all__ = [
    "HIGHEST_LOGPROB",
    "NO_TOKEN",
    "Measured",
    "Wanted",
    "columns_of",
    "impossible",
    "ordered",
]

HIGHEST_LOGPROB = 1e-3
"""The highest log-probability, nats: above 0 because sums of types of 16 bits round, and no further."""

NO_TOKEN = -1
"""In place of a token that is not there: a target that is not wanted, or a likeliest token that a server left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """What is wanted at the last tokens of a prompt, each given those before it."""

    last: int
    """Number of tokens that are measured, at least 1 and fewer than the prompt has."""
    top_k: int = 0
    """Number of the likeliest tokens in place of each."""
    targets: np.ndarray | None = None
    """Further tokens in place of each, shape (last, m), int64; `NO_TOKEN` is none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Log-probabilities, nats, float64, under the model's unmodified distribution; -inf for impossible tokens."""

    logprobs: np.ndarray
    """Of the prompt's own tokens, shape (last,)."""
    top_tokens: np.ndarray | None = None
    """The likeliest tokens, shape (last, k), int32, by falling log-probability and then by id. k is less than wanted if
    the vocabulary is smaller. `NO_TOKEN` where a server names fewer. None if none were wanted."""
    top_logprobs: np.ndarray | None = None
    """Their log-probabilities; -inf beside `NO_TOKEN`."""
    target_logprobs: np.ndarray | None = None
    """Those of the wanted targets, shape (last, m); NaN beside `NO_TOKEN`. None if none were wanted."""


def columns_of(rows: list[list[tuple[int, float]]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Likeliest tokens as columns, given the pairs of tokens and log-probabilities that a server listed for each row.

    Args:
        rows: for each row its pairs, in any order; those beyond the likeliest `width` are left out.
        width: number of columns.

    Returns:
        Tokens, int32, and log-probabilities, float64, both of shape (rows, width).
    """
    tokens = np.full((len(rows), width), NO_TOKEN, np.int32)
    logprobs = np.full((len(rows), width), -np.inf)
    for index, pairs in enumerate(rows):
        best = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:width]
        tokens[index, : len(best)] = [token for token, _ in best]
        logprobs[index, : len(best)] = [logprob for _, logprob in best]
    return tokens, logprobs


def ordered(tokens: np.ndarray, logprobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Likeliest tokens of a server, and their log-probabilities, in the order of `Measured`.

    Args:
        tokens: shape (rows, k); `NO_TOKEN` where there is none.
        logprobs: of the same shape.
    """
    order = np.lexsort((tokens, -logprobs, tokens == NO_TOKEN), axis=1)
    found = [np.take_along_axis(each, order, axis=1) for each in (tokens, logprobs)]
    return found[0].astype(np.int32), found[1].astype(np.float64)


def impossible(logprob: float) -> BackendError:
    """The refusal of an answer with a log-probability, in nats, above `HIGHEST_LOGPROB` (IMPOSSIBLE_LOGPROBS)."""
    return BackendError(
        f"the model's service returned a log-probability of {logprob:g} nats: one above 0 is that of a probability "
        "above 1, so none of the answer's is used",
        reason=Reason.IMPOSSIBLE_LOGPROBS,
        code=Code.FAILED_PRECONDITION,
        retryable=False,
    )
