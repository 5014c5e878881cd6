"""Many arrays of different lengths that lie end to end in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

__all__ = ["Ragged"]


class Ragged(Sequence[np.ndarray]):
    """A sequence of one-dimensional arrays, each a view of its part of one array.

    A column of a thousand sequences is then one array to send, to convert and to add up, and still reads as a list.
    """

    __slots__ = ("_ends", "lengths", "values")

    def __init__(self, values: np.ndarray, lengths: np.ndarray) -> None:
        """Part an array.

        Args:
            values: shape (sum of the lengths,).
            lengths: shape (sequences,), integers from 0.

        Raises:
            ValueError: the lengths do not add up to the number of values.
        """
        ends: list[int] = np.cumsum(lengths, dtype=np.int64).tolist()
        if values.shape != (ends[-1] if ends else 0,):
            raise ValueError(f"values of shape {values.shape} cannot be parted into {ends[-1] if ends else 0}")
        self.values = values
        """All values, in order."""
        self.lengths = lengths
        """How many are each sequence's."""
        self._ends = ends

    def like(self, values: np.ndarray) -> Ragged:
        """Other values, as many, parted in the same way."""
        if values.shape != self.values.shape:
            raise ValueError(f"values of shape {values.shape} cannot be parted like {self.values.shape}")
        other = object.__new__(Ragged)
        other.values, other.lengths, other._ends = values, self.lengths, self._ends
        return other

    def __len__(self) -> int:
        return len(self._ends)

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
