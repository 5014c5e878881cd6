"""Rows of requests while tokens are generated: their state, their shared cache, and the choice of each next token.

The choice depends on the row's own logits, parameters and random numbers alone.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import likeliest
from crucible_worker.backends.local.host.texts import decoded_answer
from crucible_worker.backends.local.protocol import floats_to_bytes, tokens_to_bytes
from crucible_worker.util.reasoning import OPENING_TOKENS, opening_of_prompt, parted, turned

__all__ = ["Batch", "Choice", "Chooser", "Request", "TokenRow", "choose", "make_rows"]


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


# Requests and their rows: their state while tokens are generated.


@dataclasses.dataclass(slots=True)
class Request:
    """A request of the worker; it is answered when each of its parts has a result."""

    identity: int
    """Its id on the pipe."""
    results: list[Any]
    """One result per sample or scored sequence; None until it is known."""
    over: bool = False
    """Whether it was answered, failed or was aborted: its remaining work is dropped."""

    _missing: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._missing = len(self.results)

    def take(self, index: int, result: Any) -> bool:
        """Store the result of a part; returns whether all parts have one now."""
        self.results[index] = result
        self._missing -= 1
        return self._missing == 0


class TokenRow:
    """One sample of one request, token by token."""

    def __init__(
        self,
        *,
        request: Request,
        index: int,
        prompt: Sequence[int],
        limit: int,
        stop: Sequence[str],
        stop_tokens: frozenset[int],
        opening: str,
        chooser: Chooser,
    ) -> None:
        self.request = request
        self.index = index
        self.prompt = prompt
        self.limit = limit
        self.chooser = chooser
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._tops: list[tuple[np.ndarray, np.ndarray]] = []
        self._stop = stop
        self._stop_tokens = stop_tokens
        self._opening = self._inside = opening
        # Where the present part of the output begins, reasoning or answer: the text of the tokens before it that
        # belongs to it already, and the index of the next token.
        self._carried, self._begin = "", 0
        # Every token except special ones has at least a byte of text: so many tokens contain any stop string that the
        # last token can have completed. Only they are decoded for each new token, not the whole text.
        self._tail = max((len(text.encode()) for text in stop), default=0) + 8

    @property
    def length(self) -> int:
        """Number of tokens so far, including the prompt."""
        return len(self.prompt) + len(self.tokens)

    @property
    def capacity(self) -> int:
        """Most tokens that it may get."""
        return len(self.prompt) + self.limit

    def accept(self, choice: Choice, loaded: LoadedModel) -> dict[str, Any] | None:
        """Append a token; returns the row's result if that was its last one.

        Returns:
            `text`, `tokens`, `logprobs`, `stop_reason`, `top_tokens` and `top_logprobs` (bytes, empty if they are not
            wanted), or None if the row continues.
        """
        self.tokens.append(choice.token)
        self._logprobs.append(choice.logprob)
        if choice.top is not None:
            self._tops.append(choice.top)
        if choice.token in self._stop_tokens or self._stopped(loaded):
            return self._result(loaded, "stop")
        return self._result(loaded, "length") if len(self.tokens) >= self.limit else None

    def _stopped(self, loaded: LoadedModel) -> bool:
        """Whether a stop string ends the answer: one within reasoning does not."""
        if not self._stop:
            return False
        begin = len(self.tokens) - self._tail
        if begin <= self._begin:
            tail = self._carried + _decode(loaded, self.tokens[self._begin :])
        else:
            tail = _decode(loaded, self.tokens[begin:])
        turn = turned(tail, self._inside)
        if not self._inside and any(stop in tail for stop in self._stop) and self._ended(loaded)[1]:
            return True
        if turn is not None:
            self._inside, self._carried, self._begin = turn.inside, tail[turn.end :], len(self.tokens)
            if not self._inside and any(stop in self._carried for stop in self._stop):
                return self._ended(loaded)[1]
        return False

    def _ended(self, loaded: LoadedModel) -> tuple[str, bool]:
        """The text up to the stop string that ends the answer, and whether there is one."""
        text = _decode(loaded, self.tokens)
        end = parted(text, opening=self._opening, stops=self._stop).end
        return text[:end], end < len(text)

    def _result(self, loaded: LoadedModel, reason: str) -> dict[str, Any]:
        text, stopped = self._ended(loaded)
        return {
            "text": text,
            "tokens": self.tokens,
            "logprobs": self._logprobs,
            "stop_reason": "stop" if stopped else reason,
            "top_tokens": tokens_to_bytes(np.array([tokens for tokens, _ in self._tops], np.int64)),
            "top_logprobs": floats_to_bytes(np.array([values for _, values in self._tops], np.float64)),
        }


def make_rows(request: Request, prompt: Sequence[int], message: dict[str, Any], loaded: LoadedModel) -> list[TokenRow]:
    """The rows of a request for samples: one per sample."""
    stop_tokens = loaded.stop_tokens | _special(message["stop"], loaded)
    opening = _opening(prompt, loaded) if message["stop"] else ""
    return [
        TokenRow(
            request=request,
            index=index,
            prompt=prompt,
            limit=message["max_tokens"],
            stop=message["stop"],
            stop_tokens=stop_tokens,
            opening=opening,
            chooser=Chooser(
                temperature=message["temperature"],
                top_p=message["top_p"],
                top_k=message["top_k"],
                seed=message["seed"],
                index=index,
                top=message["top"],
            ),
        )
        for index in range(len(request.results))
    ]


def _special(stop: Sequence[str], loaded: LoadedModel) -> frozenset[int]:
    """The special tokens that stop strings name: they have no text in an answer, so a text search would miss them.

    Those that mark reasoning have one.
    """
    if not stop or loaded.tokenizer is None:
        return frozenset()
    added = loaded.tokenizer.added_tokens_decoder
    named = (index for index, token in added.items() if token.special and token.content in stop)
    return frozenset(index for index in named if index not in loaded.marks)


def _opening(prompt: Sequence[int], loaded: LoadedModel) -> str:
    """The tag of reasoning with which a prompt ends."""
    if loaded.tokenizer is None:
        return ""
    end = loaded.tokenizer.decode(
        list(prompt[-OPENING_TOKENS:]), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return opening_of_prompt(end)


def _decode(loaded: LoadedModel, tokens: list[int]) -> str:
    if loaded.tokenizer is None:
        return ""
    return decoded_answer(loaded.tokenizer, loaded.marks, tokens)


# Rows that are generated together: one cache of keys and values, padded on the left, that rows can join and leave.


class Batch:
    """Rows and their cache.

    The mask says whether column c of the cache is real for a row. The last column is real for every row, so that one
    new column serves all. Positions count from each row's first token: padding changes results only by rounding.
    """

    def __init__(self, loaded: LoadedModel, rows: Sequence[TokenRow]) -> None:
        self.rows = list(rows)
        self._loaded = loaded
        self._cache: DynamicCache = loaded.new_cache()
        self._mask = torch.empty((len(rows), 0), dtype=torch.long, device=loaded.device)

    def prefill(self) -> torch.Tensor:
        """Read the prompts; returns logits of the token after each, shape (rows, vocabulary)."""
        columns = max(len(row.prompt) for row in self.rows)
        padding = [columns - len(row.prompt) for row in self.rows]
        tokens = [[0] * pad + list(row.prompt) for pad, row in zip(padding, self.rows)]
        mask = [[0] * pad + [1] * (columns - pad) for pad in padding]
        positions = [[0] * pad + list(range(columns - pad)) for pad in padding]
        return self._forward(tokens, mask, positions)

    def advance(self) -> torch.Tensor:
        """Read the last token of each row; returns logits of the next, shape (rows, vocabulary)."""
        return self._forward(
            [[row.tokens[-1]] for row in self.rows], [[1] for _ in self.rows], [[row.length - 1] for row in self.rows]
        )

    def keep(self, indices: Sequence[int]) -> None:
        """Drop all rows except these, and the columns that only the dropped ones needed."""
        if len(indices) == len(self.rows):
            return
        self.rows = [self.rows[index] for index in indices]
        if not indices:
            return
        chosen = torch.tensor(indices, device=self._loaded.device)
        self._mask = self._mask[chosen]
        self._cache.batch_select_indices(chosen)
        unused = int((self._mask.sum(0) == 0).sum()) if self._loaded.joins_batches else 0
        if unused:
            self._mask = self._mask[:, unused:]
            for layer in self._layers():
                layer.keys, layer.values = layer.keys[:, :, unused:], layer.values[:, :, unused:]

    def join(self, other: Batch) -> None:
        """Move the rows of another batch of the same model into this one."""
        columns = max(self._mask.shape[1], other._mask.shape[1])
        mask = torch.cat([_pad(part, columns, axis=1) for part in (self._mask, other._mask)])
        pairs = list(zip(self._layers(), other._layers()))
        keys = [torch.cat([_pad(layer.keys, columns, axis=2) for layer in pair]) for pair in pairs]
        values = [torch.cat([_pad(layer.values, columns, axis=2) for layer in pair]) for pair in pairs]
        # Nothing is changed before all tensors are made: a lack of memory meanwhile leaves this batch unchanged.
        self._mask = mask
        for (layer, _), joined_keys, joined_values in zip(pairs, keys, values):
            layer.keys, layer.values = joined_keys, joined_values
        self.rows += other.rows
        other.rows = []

    def _layers(self) -> list[Any]:
        """The layers that have keys and values; in some models, layers share them."""
        layers: list[Any] = self._cache.layers
        return [layer for layer in layers if layer.is_initialized]

    def _forward(self, tokens: list[list[int]], mask: list[list[int]], positions: list[list[int]]) -> torch.Tensor:
        loaded = self._loaded
        self._mask = torch.cat([self._mask, torch.tensor(mask, device=loaded.device)], dim=1)
        given = {"input_ids": torch.tensor(tokens, device=loaded.device), loaded.cache_argument: self._cache}
        optional = {"position_ids": torch.tensor(positions, device=loaded.device), "logits_to_keep": 1}
        output = loaded.model(
            **given,
            # A single row has no padding, and recurrent models read a mask as a mask of the new tokens.
            attention_mask=self._mask if loaded.joins_batches else None,
            use_cache=True,
            **{name: value for name, value in optional.items() if name in loaded.arguments},
        )
        return output.logits[:, -1]


def _pad(tensor: torch.Tensor, columns: int, *, axis: int) -> torch.Tensor:
    """Zeros on the left of an axis, up to so many columns."""
    missing = columns - tensor.shape[axis]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[axis] = missing
    return torch.cat([tensor.new_zeros(shape), tensor], dim=axis)
