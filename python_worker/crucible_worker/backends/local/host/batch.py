"""Rows that are generated together: one cache of keys and values, padded on the left, that rows can join and leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.rows import TokenRow

__all__ = ["Batch"]


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
