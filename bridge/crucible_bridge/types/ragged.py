"""Many arrays of different lengths, stored end to end in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from crucible_bridge.types.tensors import Tensor

__all__ = ["Ragged"]


class Ragged(Sequence[np.ndarray]):
    """A sequence of one-dimensional arrays, each a view of its part of one array.

    So a column of a thousand sequences is sent, converted and summed as one array, but can be used like a list.
    """

    __slots__ = ("_known_ends", "lengths", "stored", "values")

    def __init__(self, values: np.ndarray, lengths: np.ndarray, *, stored: Tensor | None = None) -> None:
        """Split an array.

        Args:
            values: shape (sum of the lengths,).
            lengths: shape (sequences,), integers from 0.
            stored: the values before they were widened.

        Raises:
            ValueError: the lengths do not add up to the number of values.
        """
        if values.shape != (total := int(lengths.sum(dtype=np.int64)),):
            raise ValueError(f"values of shape {values.shape} cannot be split into {total}")
        self.values = values
        """All values, in order."""
        self.lengths = lengths
        """The number of values of each sequence."""
        self.stored = stored
        """The values in their original type, if numpy lacks it: bf16."""
        self._known_ends: list[int] | None = None

    def like(self, values: np.ndarray, *, stored: Tensor | None = None) -> Ragged:
        """Other values, the same number, split in the same way."""
        if values.shape != self.values.shape:
            raise ValueError(f"values of shape {values.shape} cannot be split like {self.values.shape}")
        other = object.__new__(Ragged)
        other.values, other.lengths, other.stored = values, self.lengths, stored
        other._known_ends = self._known_ends
        return other

    @property
    def _ends(self) -> list[int]:
        """The end of each part; computed when first needed, as there may be millions."""
        ends = self._known_ends
        if ends is None:
            ends = self._known_ends = list(np.cumsum(self.lengths, dtype=np.int64).tolist())
        return ends

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...

    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return self.values[self._ends[index - 1] if index else 0 : self._ends[index]]

    def __iter__(self) -> Iterator[np.ndarray]:
        start = 0
        for end in self._ends:
            yield self.values[start:end]
            start = end
