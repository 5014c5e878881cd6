"""Log-probabilities of given tokens, and the likeliest in their place: what belongs together is read by one pass.

Together belong the windows of one text, and the continuations of one prompt, which is then read once: every attempt at
an evaluation asks for them together. What is measured alone is the same bit for bit on every call; `company.py` tells
what may be measured beside others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from crucible_bridge.errors import BackendError
from crucible_worker.backends.local.frames import floats_to_bytes, tokens_to_bytes
from crucible_worker.backends.local.host.loading import LoadedModel

__all__ = ["MAX_CACHED_TOKENS", "POSITIONS_AT_ONCE", "Part", "continuations", "measure", "sequences"]

POSITIONS_AT_ONCE = 512
"""Positions whose distributions are computed at a time: 512 of a vocabulary of 150,000 take 0.6 GB in float64. A single
sequence may have more."""
MAX_CACHED_TOKENS = 65_536
"""Rows times columns of a prompt and what stands behind it, once for each continuation that is read at a time."""
_FEWEST_POSITIONS = 8
"""Matrix kernels have another path for a handful of rows: where company is kept, a pass has at least so many."""


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
    def shape(self) -> tuple[int, int, int]:
        """p, k and w: parts of one shape can be computed by one pass."""
        return (self.prompt.size, *self.rows.shape)

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


def measure(loaded: LoadedModel, parts: Sequence[Part]) -> list[list[bytes]]:
    """Compute parts of one shape, all of them greedy or none, by one pass.

    Returns:
        Of each part and row, as many as the row has targets: log-probabilities, float64, nats, of the model's logits
        normalized in float64; or the likeliest tokens, int64, of equally likely ones that with the lowest id.

    Raises:
        BackendError: likeliest tokens are asked for where the greatest logit is not finite (LOGITS_NOT_FINITE).
    """
    prompts, rows, targets = (np.stack(arrays) for arrays in zip(*((p.prompt, p.rows, p.targets) for p in parts)))
    if not prompts.size:
        values = _of_rows(loaded, rows, targets, greedy=parts[0].greedy)
    elif loaded.joins_batches:
        values = _behind_prompts(loaded, prompts, rows, targets)
    else:
        # A recurrent state cannot be shared out: the prompt is read with each row.
        before = np.broadcast_to(prompts[:, None], (*rows.shape[:2], prompts.shape[1]))
        values = _of_rows(loaded, np.concatenate([before, rows], axis=2), targets)
    to_bytes = tokens_to_bytes if parts[0].greedy else floats_to_bytes
    return [
        [to_bytes(row[:size]) for row, size in zip(found, part.sizes, strict=True)]
        for part, found in zip(parts, values, strict=True)
    ]


def _behind_prompts(loaded: LoadedModel, prompts: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities of targets, shape (n, k, w + 1), where each of n prompts is read once."""
    numbers = _numbers(loaded, 0, *prompts.shape)
    cache = loaded.new_cache()
    first = _logits(loaded, prompts[numbers], cache=cache, last=True)[: len(prompts), -1]
    found = [_logprobs(first, targets[:, :, 0])[:, :, None]]
    if rows.shape[2]:
        found.append(_of_rows(loaded, rows, targets[:, :, 1:], cache=cache, read=prompts.shape[1]))
    return np.concatenate(found, axis=2)


def _of_rows(
    loaded: LoadedModel,
    rows: np.ndarray,
    targets: np.ndarray,
    *,
    cache: DynamicCache | None = None,
    read: int = 0,
    greedy: bool = False,
) -> np.ndarray:
    """What stands behind the last m tokens of each row, shape (n, k, m).

    Args:
        loaded: the model.
        rows: shape (n, k, w).
        targets: shape (n, k, m), m at most w.
        cache: of what was read before the rows, by n.
        read: tokens that it holds.
        greedy: ask for the likeliest tokens, not for the targets' log-probabilities.
    """
    (parts, count, width), wanted = rows.shape, targets.shape[2]
    flat, flat_targets = rows.reshape(parts * count, width), targets.reshape(parts * count, wanted)
    found: list[np.ndarray] = []
    at_once = max(1, min(POSITIONS_AT_ONCE // max(width, 1), MAX_CACHED_TOKENS // max(read + width, 1)))
    # A row of nothing has nothing behind it, and no model takes it.
    for start in range(0, len(flat) if width else 0, at_once):
        some = flat_targets[start : start + at_once]
        numbers = _numbers(loaded, start, len(some), width)
        behind = None if cache is None else _shared_out(loaded, cache, numbers // count)
        logits = _logits(loaded, flat[numbers], cache=behind, read=read)[: len(some), -wanted:].flatten(0, 1)
        values = _likeliest(loaded, logits) if greedy else _logprobs(logits, some.reshape(-1, 1))
        found.append(values.reshape(some.shape))
    return np.concatenate(found or [flat_targets]).reshape(targets.shape)


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


def _numbers(loaded: LoadedModel, first: int, count: int, width: int) -> np.ndarray:
    """Numbers of the rows of a pass; the last one again and again where they are too few."""
    fewest = -(-_FEWEST_POSITIONS // width) if loaded.keeps_company else count
    numbers = np.arange(first, first + max(count, fewest))
    return np.minimum(numbers, first + count - 1)


def _shared_out(loaded: LoadedModel, cache: DynamicCache, numbers: np.ndarray) -> DynamicCache:
    """A cache of its own for every row: that of the prompt with this number."""
    chosen = torch.tensor(numbers, device=loaded.device)
    made = loaded.new_cache()
    layers: list[Any] = cache.layers
    for index, layer in enumerate(layers):
        if layer.is_initialized:  # some models share theirs with others
            made.update(layer.keys[chosen], layer.values[chosen], index)
    return made


def _likeliest(loaded: LoadedModel, logits: torch.Tensor) -> np.ndarray:
    """The likeliest token by each row of logits."""
    # As they are: a wider type orders them no otherwise. What is behind the vocabulary is padding, and no token.
    logits = logits[:, : loaded.vocabulary]
    if not logits.amax(1).isfinite().all():
        raise BackendError("the model's logits are not finite", reason="LOGITS_NOT_FINITE", retryable=False)
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
