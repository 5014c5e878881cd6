"""Log-probabilities of given tokens, and the likeliest in their place: what belongs together is read by one pass.

The windows of one text belong together, and so do the continuations of one prompt, which is then read once: every
attempt at an evaluation asks for them together. Sequences of different requests never share a pass. The number of rows
of a pass selects the matrix kernels, and these differ in the last bits; a resumed evaluation must equal one that ran
through, and the other requests of that time are not known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_to_bytes
from crucible_worker.backends.local.host.loading import LoadedModel

__all__ = ["MAX_CACHED_TOKENS", "POSITIONS_AT_ONCE", "Part", "continuations", "measure", "sequences"]

POSITIONS_AT_ONCE = 512
"""Positions whose distributions are computed at a time: 512 of a vocabulary of 150,000 take 0.6 GB in float64. A single
sequence may have more."""
MAX_CACHED_TOKENS = 65_536
"""Rows times columns of a prompt and what stands behind it, once for each continuation that is read at a time."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one pass measures: rows of tokens, behind a prompt that they share or each for itself."""

    prompt: np.ndarray
    """Shape (p,), int64; may be empty."""
    rows: np.ndarray
    """Shape (k, w), int64: what is read of each row behind the prompt, filled up to one width."""
    targets: np.ndarray
    """Shape (k, m), int64: what is measured behind each token, m being w; with a prompt, behind that first: w + 1."""
    sizes: Sequence[int]
    """How many of its m targets each row has."""
    greedy: bool = False
    """Whether the likeliest tokens are asked for, and targets are not looked at."""

    @property
    def positions(self) -> int:
        """Tokens that are read."""
        return self.prompt.size + self.rows.size


def sequences(
    tokens: Sequence[np.ndarray], targets: Sequence[np.ndarray] | None = None, *, together: bool = False
) -> Iterator[Part]:
    """Sequences to be measured from their first token on.

    Args:
        tokens: of each, shape (n,), int64.
        targets: of each, shape (n,), int64: entry i comes behind token i. None asks for the likeliest.
        together: those that follow each other make one part, as far as they fit with each as long as the longest.
    """
    first = 0
    while first < len(tokens):
        width = tokens[first].size
        last = first + 1
        while together and last < len(tokens):
            widest = max(width, tokens[last].size)
            if widest * (last + 1 - first) > POSITIONS_AT_ONCE:
                break
            width = widest
            last += 1
        rows = _filled(tokens[first:last], width)
        yield Part(
            prompt=np.empty(0, np.int64),
            rows=rows,
            targets=rows if targets is None else _filled(targets[first:last], width),
            sizes=[sequence.size for sequence in tokens[first:last]],
            greedy=targets is None,
        )
        first = last


def continuations(prompt: np.ndarray, given: Sequence[np.ndarray]) -> Part:
    """Continuations of one prompt, every token of which is measured.

    Args:
        prompt: shape (p,), int64, p at least 1.
        given: of each continuation, shape (n,), int64, n at least 1.
    """
    width = max(each.size for each in given)
    targets = _filled(given, width)
    # Behind the last token of a continuation nothing is asked.
    return Part(prompt=prompt, rows=targets[:, :-1], targets=targets, sizes=[each.size for each in given])


def measure(loaded: LoadedModel, part: Part) -> list[bytes]:
    """Compute a part by one pass, or by as few as have room for it.

    Returns:
        Of each row, as many as it has targets: log-probabilities, float64, nats, of the model's logits normalized in
        float64; or the likeliest tokens, int64, of equally likely ones that with the lowest id.

    Raises:
        BackendError: likeliest tokens are asked for where the greatest logit is not finite (LOGITS_NOT_FINITE).
    """
    prompt, rows, targets = part.prompt, part.rows, part.targets
    if not prompt.size:
        values = _of_rows(loaded, rows, targets, greedy=part.greedy)
    elif loaded.joins_batches:
        values = _behind_prompt(loaded, prompt, rows, targets)
    else:
        # A recurrent state cannot be shared out: the prompt is read with each row.
        before = np.broadcast_to(prompt, (len(rows), prompt.size))
        values = _of_rows(loaded, np.concatenate([before, rows], axis=1), targets)
    to_bytes = tokens_to_bytes if part.greedy else floats_to_bytes
    return [to_bytes(row[:size]) for row, size in zip(values, part.sizes, strict=True)]


def _behind_prompt(loaded: LoadedModel, prompt: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities of targets, shape (k, w + 1), where the prompt is read once."""
    cache = loaded.new_cache()
    first = _logits(loaded, prompt[None], cache=cache, last=True)[:, -1]
    found = [_logprobs(first, targets[:, 0][None]).T]
    if rows.shape[1]:
        found.append(_of_rows(loaded, rows, targets[:, 1:], cache=cache, read=prompt.size))
    return np.concatenate(found, axis=1)


def _of_rows(
    loaded: LoadedModel,
    rows: np.ndarray,
    targets: np.ndarray,
    *,
    cache: DynamicCache | None = None,
    read: int = 0,
    greedy: bool = False,
) -> np.ndarray:
    """Log-probabilities or likeliest tokens of the last m tokens of each row, shape (k, m).

    Args:
        loaded: the model.
        rows: shape (k, w).
        targets: shape (k, m), m at most w.
        cache: of the prompt that was read before the rows.
        read: tokens that it holds.
        greedy: ask for the likeliest tokens, not for the targets' log-probabilities.
    """
    width, wanted = rows.shape[1], targets.shape[1]
    found: list[np.ndarray] = []
    at_once = max(1, min(POSITIONS_AT_ONCE // max(width, 1), MAX_CACHED_TOKENS // max(read + width, 1)))
    # A row of nothing has nothing behind it, and no model takes it.
    for start in range(0, len(rows) if width else 0, at_once):
        some = targets[start : start + at_once]
        behind = None if cache is None else _shared_out(loaded, cache, len(some))
        logits = _logits(loaded, rows[start : start + at_once], cache=behind, read=read)[:, -wanted:].flatten(0, 1)
        values = _likeliest(loaded, logits) if greedy else _logprobs(logits, some.reshape(-1, 1))
        found.append(values.reshape(some.shape))
    return np.concatenate(found or [targets])


def _logits(
    loaded: LoadedModel, rows: np.ndarray, *, cache: DynamicCache | None = None, read: int = 0, last: bool = False
) -> torch.Tensor:
    """Logits behind each token, shape (rows, width, vocabulary); fewer columns where the `last` ones are enough."""
    given: dict[str, Any] = {"input_ids": torch.tensor(rows, device=loaded.device), "use_cache": cache is not None}
    if cache is not None:
        given[loaded.cache_argument] = cache
        if "position_ids" in loaded.arguments:
            positions = torch.arange(read, read + rows.shape[1], device=loaded.device)
            given["position_ids"] = positions.expand(*rows.shape)
    if last and "logits_to_keep" in loaded.arguments:
        given["logits_to_keep"] = 1
    return loaded.model(**given).logits


def _shared_out(loaded: LoadedModel, cache: DynamicCache, count: int) -> DynamicCache:
    """A cache for so many rows, each of which continues the prompt."""
    made = loaded.new_cache()
    layers: list[Any] = cache.layers
    for index, layer in enumerate(layers):
        if layer.is_initialized:  # some models share theirs with others
            made.update(layer.keys.repeat_interleave(count, 0), layer.values.repeat_interleave(count, 0), index)
    return made


def _likeliest(loaded: LoadedModel, logits: torch.Tensor) -> np.ndarray:
    """The likeliest token by each row of logits."""
    # As they are: a wider type orders them no otherwise. What is behind the vocabulary is padding, and no token.
    logits = logits[:, : loaded.vocabulary]
    if not logits.amax(1).isfinite().all():
        raise BackendError("the model's logits are not finite", reason=Reason.LOGITS_NOT_FINITE, retryable=False)
    return logits.argmax(1).cpu().numpy()


def _logprobs(logits: torch.Tensor, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities, shape (rows, m), of m targets by each row of logits."""
    wanted = torch.tensor(targets, device=logits.device)
    parts: list[torch.Tensor] = []
    for start in range(0, len(targets), POSITIONS_AT_ONCE):
        part = slice(start, start + POSITIONS_AT_ONCE)
        distribution = logits[part].double()
        parts.append(distribution.gather(1, wanted[part]) - distribution.logsumexp(1, keepdim=True))
    return torch.cat(parts).cpu().numpy()


def _filled(given: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Sequences as rows of one width. A causal model sees nothing of what stands behind a token: any token fills."""
    filled = np.zeros((len(given), width), np.int64)
    for row, sequence in zip(filled, given, strict=True):
        row[: sequence.size] = sequence
    return filled
