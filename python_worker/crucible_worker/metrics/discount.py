"""Discounted sums of future values: y[i] = x[i] + g * x[i + 1] + g^2 * x[i + 2] + ... within each sequence.

The recurrence y[i] = x[i] + g * y[i + 1] needs one step per token. Here sequences are cut into pieces of equal length,
which take their steps side by side. Then each piece receives the sums of the pieces that follow it: the first value of
a piece is its sum, and the sums of the pieces of a sequence obey the same recurrence with the discount g^length. So a
sequence of a million tokens takes some hundred steps, and rounding errors grow with the number of steps, not of tokens.
"""

from __future__ import annotations

import numpy as np

__all__ = ["suffix_sums"]

_LONGEST_PIECE = 64
"""Tokens of a piece, which are the steps of a round."""
_VALUES_AT_ONCE = 1 << 20
"""Values of sequences that are cut together, eight megabytes; a longer sequence is cut alone."""
_PIECES_AT_ONCE = 1_024
"""Pieces that take their steps together: half a megabyte, which stays in the cache."""


def suffix_sums(values: np.ndarray, lengths: np.ndarray, discount: float) -> None:
    """Replace values by their discounted sums.

    Args:
        values: shape (N,), float64: the sequences end to end; changed in place.
        lengths: of the sequences, shape (S,), integers; their sum is N.
        discount: g, in (0, 1].
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    start = done = 0
    while start < lengths.size:
        stop = int(np.searchsorted(ends, done + _VALUES_AT_ONCE, side="right"))
        stop = max(start + 1, min(stop, start + _VALUES_AT_ONCE))
        end = int(ends[stop - 1])
        _some_suffix_sums(values[done:end], lengths[start:stop], discount)
        start, done = stop, end


def _some_suffix_sums(values: np.ndarray, lengths: np.ndarray, discount: float) -> None:
    """The same for a block of sequences, which bounds the memory."""
    # The average length of a sequence, so that padding at most doubles the values; at least 2, so that it ends.
    size = int(np.clip(values.size // max(1, np.count_nonzero(lengths)), 2, _LONGEST_PIECE))
    pieces_of = -(-lengths // size)
    count = int(pieces_of.sum())
    if not count:
        return
    # Zeros at the end of a sequence change no sum before them.
    pieces = np.zeros((count, size))
    padded = pieces.reshape(-1)
    places = _places((np.cumsum(pieces_of) - pieces_of) * size, lengths)
    for place, span in places:
        padded[place] = values[span]
    for first in range(0, count, _PIECES_AT_ONCE):
        _step(pieces[first : first + _PIECES_AT_ONCE], discount)
    if pieces_of.max() > 1:
        _carry(pieces, pieces_of, discount)
    for place, span in places:
        values[span] = padded[place]


def _places(starts: np.ndarray, lengths: np.ndarray) -> list[tuple[slice | np.ndarray, slice]]:
    """The indices of values among the pieces, and in their own array."""
    own = np.cumsum(lengths) - lengths
    if int(lengths.sum()) < _LONGEST_PIECE * lengths.size:
        # Short sequences all at once: a Python step for each would take longer than the sums.
        total = int(lengths.sum())
        return [(np.arange(total) + np.repeat(starts - own, lengths), slice(0, total))]
    return [
        (slice(at, at + length), slice(start, start + length))
        for at, start, length in zip(starts.tolist(), own.tolist(), lengths.tolist())
    ]


def _step(pieces: np.ndarray, discount: float) -> None:
    """The recurrence along the second axis, all pieces at once."""
    columns = np.ascontiguousarray(pieces.T)
    carried = np.empty(columns.shape[1])
    for index in range(columns.shape[0] - 2, -1, -1):
        np.multiply(columns[index + 1], discount, out=carried)
        columns[index] += carried
    pieces[:] = columns.T


def _carry(pieces: np.ndarray, pieces_of: np.ndarray, discount: float) -> None:
    """Add to each piece the discounted sums of the later pieces of its sequence."""
    size = pieces.shape[1]
    sums = pieces[:, 0].copy()
    suffix_sums(sums, pieces_of, discount**size)
    following = np.append(sums[1:], 0.0)
    ends = np.cumsum(pieces_of)[pieces_of > 0] - 1
    following[ends] = 0.0
    powers = discount ** np.arange(size, 0, -1.0)
    pieces += following[:, None] * powers
