"""Log-probabilities of given tokens, and the likeliest tokens in their place; related sequences share a pass.

The windows of one text are related, and so are the continuations of one prompt, which is then read once: every attempt
at an evaluation requests them together. Sequences of different requests never share a pass. The number of rows of a
pass selects the matrix kernels, and these differ in the last bits. A resumed evaluation must equal one without
interruption, and the other requests of that time are not known.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.protocol import floats_to_bytes, tokens_from_bytes, tokens_to_bytes

__all__ = [
    "MAX_CACHED_TOKENS",
    "POSITIONS_AT_ONCE",
    "WORTH_A_THREAD",
    "Measured",
    "Part",
    "Replicas",
    "TokenDistributions",
    "continuations",
    "likeliest",
    "logits_of",
    "measure",
    "sequences",
]


POSITIONS_AT_ONCE = 512
"""Positions for which distributions are computed at a time: 512 with a vocabulary of 150,000 take 0.6 GB in float64. A
single sequence may have more."""
MAX_CACHED_TOKENS = 65_536
"""Most rows times columns of a prompt and its continuations that are read at a time; the prompt counts for each row."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one pass measures: rows of tokens, after a shared prompt or without one."""

    prompt: np.ndarray
    """Shape (p,), int64; may be empty."""
    rows: np.ndarray
    """Shape (k, w), int64: the tokens read of each row after the prompt, padded to one width."""
    targets: np.ndarray
    """Shape (k, m), int64: what is measured after each token: m is w; with a prompt, also after that: m is w + 1."""
    sizes: Sequence[int]
    """Number of real targets of each row, at most m."""
    greedy: bool = False
    """Whether the likeliest tokens are requested; targets are ignored then."""

    @property
    def positions(self) -> int:
        """Number of tokens that are read."""
        return self.prompt.size + self.rows.size

    def measured(self, loaded: LoadedModel) -> list[bytes]:
        """Compute it: see `measure`."""
        return measure(loaded, self)


def sequences(
    tokens: Sequence[np.ndarray], targets: Sequence[np.ndarray] | None = None, *, together: bool = False
) -> Iterator[Part]:
    """Parts of sequences that are measured from their first token on.

    Args:
        tokens: of each sequence, shape (n,), int64.
        targets: of each sequence, shape (n,), int64: entry i follows token i. None requests the likeliest tokens.
        together: consecutive sequences make one part, as far as they fit when padded to the longest.
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
        rows = _padded(tokens[first:last], width)
        yield Part(
            prompt=np.empty(0, np.int64),
            rows=rows,
            targets=rows if targets is None else _padded(targets[first:last], width),
            sizes=[sequence.size for sequence in tokens[first:last]],
            greedy=targets is None,
        )
        first = last


def continuations(prompt: np.ndarray, given: Sequence[np.ndarray]) -> Part:
    """The part of continuations of one prompt; every token of them is measured.

    Args:
        prompt: shape (p,), int64, p at least 1.
        given: of each continuation, shape (n,), int64, n at least 1.
    """
    width = max(each.size for each in given)
    targets = _padded(given, width)
    # Nothing is measured after the last token of a continuation.
    return Part(prompt=prompt, rows=targets[:, :-1], targets=targets, sizes=[each.size for each in given])


def measure(loaded: LoadedModel, part: Part) -> list[bytes]:
    """Compute a part by one pass, or by as few as fit into memory.

    Returns:
        For each row, one value per target: log-probabilities, float64, nats, of the model's logits normalized in
        float64; or the likeliest tokens, int64, among equally likely ones the one with the lowest id.

    Raises:
        BackendError: a likeliest token is requested, but the greatest logit is not finite (LOGITS_NOT_FINITE).
    """
    prompt, rows, targets = part.prompt, part.rows, part.targets
    if not prompt.size:
        values = _of_rows(loaded, rows, targets, greedy=part.greedy)
    elif loaded.joins_batches:
        values = _after_prompt(loaded, prompt, rows, targets)
    else:
        # A recurrent state cannot be shared by rows: the prompt is read with each row.
        before = np.broadcast_to(prompt, (len(rows), prompt.size))
        values = _of_rows(loaded, np.concatenate([before, rows], axis=1), targets)
    to_bytes = tokens_to_bytes if part.greedy else floats_to_bytes
    return [to_bytes(row[:size]) for row, size in zip(values, part.sizes, strict=True)]


def _after_prompt(loaded: LoadedModel, prompt: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities of targets, shape (k, w + 1); the prompt is read once."""
    cache = loaded.new_cache()
    first = logits_of(loaded, prompt[None], cache=cache, keep=1)[:, -1]
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
        read: number of tokens in the cache.
        greedy: return the likeliest tokens, not the targets' log-probabilities.
    """
    width, wanted = rows.shape[1], targets.shape[1]
    found: list[np.ndarray] = []
    at_once = max(1, min(POSITIONS_AT_ONCE // max(width, 1), MAX_CACHED_TOKENS // max(read + width, 1)))
    # An empty row has no targets, and no model accepts it.
    for start in range(0, len(rows) if width else 0, at_once):
        some = targets[start : start + at_once]
        shared = None if cache is None else _shared_cache(loaded, cache, len(some))
        logits = logits_of(loaded, rows[start : start + at_once], cache=shared, read=read)[:, -wanted:].flatten(0, 1)
        values = _likeliest(loaded, logits) if greedy else _logprobs(logits, some.reshape(-1, 1))
        found.append(values.reshape(some.shape))
    return np.concatenate(found or [targets])


def logits_of(
    loaded: LoadedModel,
    rows: np.ndarray,
    *,
    cache: DynamicCache | None = None,
    read: int = 0,
    keep: int | None = None,
) -> torch.Tensor:
    """Logits after each token, shape (rows, width, vocabulary); fewer columns if the last ones, `keep`, are enough."""
    given: dict[str, Any] = {"input_ids": torch.tensor(rows, device=loaded.device), "use_cache": cache is not None}
    if cache is not None:
        given[loaded.cache_argument] = cache
        if "position_ids" in loaded.arguments:
            positions = torch.arange(read, read + rows.shape[1], device=loaded.device)
            given["position_ids"] = positions.expand(*rows.shape)
    if keep is not None and keep < rows.shape[1] and "logits_to_keep" in loaded.arguments:
        given["logits_to_keep"] = keep
    return loaded.model(**given).logits


def _shared_cache(loaded: LoadedModel, cache: DynamicCache, count: int) -> DynamicCache:
    """A cache for `count` rows that all continue the prompt."""
    made = loaded.new_cache()
    layers: list[Any] = cache.layers
    for index, layer in enumerate(layers):
        if layer.is_initialized:  # some models share theirs with others
            made.update(layer.keys.repeat_interleave(count, 0), layer.values.repeat_interleave(count, 0), index)
    return made


def _likeliest(loaded: LoadedModel, logits: torch.Tensor) -> np.ndarray:
    """The likeliest token of each row of logits."""
    # Without conversion: a wider type has the same order. Logits beyond the vocabulary are padding.
    logits = logits[:, : loaded.vocabulary]
    if not logits.amax(1).isfinite().all():
        raise BackendError("the model's logits are not finite", reason=Reason.LOGITS_NOT_FINITE, retryable=False)
    return logits.argmax(1).cpu().numpy()


def _logprobs(logits: torch.Tensor, targets: np.ndarray) -> np.ndarray:
    """Log-probabilities, shape (rows, m), of m targets for each row of logits."""
    wanted = torch.tensor(targets, device=logits.device)
    parts: list[torch.Tensor] = []
    for start in range(0, len(targets), POSITIONS_AT_ONCE):
        part = slice(start, start + POSITIONS_AT_ONCE)
        distribution = logits[part].double()
        parts.append(distribution.gather(1, wanted[part]) - distribution.logsumexp(1, keepdim=True))
    return torch.cat(parts).cpu().numpy()


def _padded(given: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Sequences as rows of one width. A causal model does not see the tokens after a position: any token can pad."""
    filled = np.zeros((len(given), width), np.int64)
    for row, sequence in zip(filled, given, strict=True):
        row[: sequence.size] = sequence
    return filled


# The likeliest tokens in place of each token of a sequence, and given ones, beside the sequence's own.
#
# Each sequence is measured by a pass of its own, as above without related ones: the answer is the same in
# every call.


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TokenDistributions:
    """What one pass measures after the last tokens of a sequence."""

    tokens: np.ndarray
    """Shape (n,), int64: the tokens that are read."""
    own: np.ndarray
    """Shape (rows,), int64: the tokens that follow the last ones that are read."""
    top_k: int
    """Number of the likeliest tokens in place of each; may be 0."""
    targets: np.ndarray
    """Shape (rows, m), int64: further tokens in place of each; `NO_TOKEN` is none."""

    @classmethod
    def of(cls, message: dict[str, Any]) -> TokenDistributions:
        """As the worker requests them."""
        own = tokens_from_bytes(message["own"])
        targets = tokens_from_bytes(message["targets"]).reshape(own.size, -1)
        return cls(tokens_from_bytes(message["tokens"]), own, message["top_k"], targets)

    @property
    def sizes(self) -> tuple[int]:
        """Number of measured tokens."""
        return (self.own.size,)

    @property
    def positions(self) -> int:
        """Number of tokens that are read."""
        return self.tokens.size

    def measured(self, loaded: LoadedModel) -> list[dict[str, Any]]:
        """Compute them by one pass.

        Returns:
            One map: `logprobs`, shape (rows,), `targets`, shape (rows, m), and `top_logprobs`, shape (rows, k), nats,
            float64, of logits normalized in float64; `top_tokens`, int64, by falling log-probability and then by id.

        Raises:
            BackendError: logits are no distribution (LOGITS_NOT_FINITE).
        """
        rows = self.own.size
        logits = logits_of(loaded, self.tokens[None], keep=rows)[0, -rows:]
        wanted = torch.tensor(np.column_stack([self.own, self.targets]), device=logits.device)
        values: list[np.ndarray] = []
        tokens: list[np.ndarray] = []
        tops: list[np.ndarray] = []
        for start in range(0, rows, POSITIONS_AT_ONCE):
            part = slice(start, start + POSITIONS_AT_ONCE)
            distribution = logits[part].double()
            normalizer = distribution.logsumexp(1, keepdim=True)
            if not normalizer.isfinite().all():
                raise BackendError(
                    "the model's logits are not finite", reason=Reason.LOGITS_NOT_FINITE, retryable=False
                )
            values.append((distribution.gather(1, wanted[part].clamp(min=0)) - normalizer).cpu().numpy())
            if self.top_k:
                # Logits beyond the vocabulary are padding.
                best, found = likeliest(distribution[:, : loaded.vocabulary], self.top_k)
                tokens.append(found.cpu().numpy())
                tops.append((best - normalizer).cpu().numpy())
        columns = np.concatenate(values)
        columns[:, 1:][self.targets == NO_TOKEN] = np.nan
        return [
            {
                "logprobs": floats_to_bytes(columns[:, 0]),
                "targets": floats_to_bytes(columns[:, 1:]),
                "top_tokens": tokens_to_bytes(np.concatenate(tokens)) if tokens else b"",
                "top_logprobs": floats_to_bytes(np.concatenate(tops)) if tops else b"",
            }
        ]


def likeliest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest logits of each row, and their tokens, in falling order; among equal ones the lowest ids come first.

    Args:
        logits: shape (rows, vocabulary), without NaN.
        count: number of tokens; as many as there are, if there are fewer.
    """
    count = min(count, logits.shape[1])
    least = logits.topk(count).values[:, -1:]
    # topk takes any of several equal logits, and types of few bits have many: the lowest ids are taken here.
    above, equal = logits > least, logits == least
    free = count - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1) <= free))
    tokens = taken.nonzero()[:, 1].reshape(-1, count)
    values, order = logits.gather(1, tokens).sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, order)


# Concurrent passes of a small model: one pass uses one thread, so several cores compute several passes.
#
# Each thread has a copy of the model, as models need not be thread-safe: some store tables for the longest sequence so
# far. A copy is made when it is first needed; it has 10 million parameters at most.

WORTH_A_THREAD = 256
"""Positions from which passes are computed concurrently: a shorter one is over before a second thread runs."""
_MOST = 4
"""Most threads that measure."""

_log = logging.getLogger(__name__)

Measured = Sequence[Any] | Exception
"""The results of a part's rows, or the error."""


class Replicas:
    """Measures parts of one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._copies: list[LoadedModel] = []
        self.width = min(_MOST, len(os.sched_getaffinity(0))) if loaded.single_threaded else 1
        """Number of concurrent passes."""

    def measure(self, parts: Sequence[Part | TokenDistributions]) -> list[Measured]:
        """Measure parts, at most `width` of them, each by a separate pass."""
        first, *others = parts
        copies = self._have(len(others)) if others else []
        running = [self._threads.submit(_in_thread, *each) for each in zip(copies, others)]
        own = [_measured(self._loaded, part) for part in (first, *others[len(copies) :])]
        return [own[0], *(future.result() for future in running), *own[1:]]

    def _have(self, count: int) -> list[LoadedModel]:
        """Up to `count` copies of the model; fewer if it cannot be copied, which is not tried again."""
        try:
            while len(self._copies) < count:
                copied = copy.deepcopy(self._loaded.model)
                self._copies.append(dataclasses.replace(self._loaded, model=copied))
        except Exception:  # a custom model may raise any error here
            _log.warning("a model cannot be copied: its passes are computed one after the other", exc_info=True)
            self.width = 1 + len(self._copies)
        return self._copies[:count]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Started when first needed. A second thread for a pass would cost more than it saves, as for the model itself.
        return ThreadPoolExecutor(self.width - 1, "measuring", torch.set_num_threads, (1,))


@torch.inference_mode()
def _in_thread(loaded: LoadedModel, part: Part | TokenDistributions) -> Measured:
    return _measured(loaded, part)


def _measured(loaded: LoadedModel, part: Part | TokenDistributions) -> Measured:
    try:
        return part.measured(loaded)
    except Exception as error:  # any error is an answer; the host continues
        return error
