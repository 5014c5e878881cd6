"""Sums over the tokens of many sequences: fast, in float64, and exact enough for every use here.

Tokens are summed in blocks that stay in the cache, with BLAS in rows of `_ROW_TOKENS`, and the sums of the blocks
are added exactly. A running sum never has more than some thousand terms, so the error stays below `_ROW_TOKENS` *
2^-53 of the sum of absolute terms: 1e-12 at worst, in practice the last digits, whatever the number of tokens and their
order. This also holds for terms of both signs that cancel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from crucible_bridge.types import Ragged

__all__ = [
    "BLOCK_TOKENS",
    "MAX_CANCELLATION",
    "blocks",
    "count_values",
    "dot",
    "exact_sum",
    "exact_total",
    "sequence_blocks",
    "total",
]

BLOCK_TOKENS = 32_768
"""Tokens in a block: its columns fit in a second-level cache, and its calls cost little compared to its arithmetic."""

MAX_CANCELLATION = 2.0
"""Ratio of the sum of absolute weights to that of weights up to which a fast sum has enough digits."""

_ROW_TOKENS = 8_192
# Above 10,000 elements OpenBLAS spreads a dot product over threads, which on busy cores takes ten times as long as the
# product itself.


def blocks(*columns: Sequence[np.ndarray], dtypes: Sequence[np.dtype | type]) -> Iterator[tuple[np.ndarray, ...]]:
    """Iterate over sequences in blocks: short sequences are joined, long ones are split.

    Args:
        columns: each one array of shape (T_i,) per sequence; the lengths are those of the first column's.
        dtypes: the element type to convert each column to.

    Yields:
        One array of shape (N,), 0 < N <= `BLOCK_TOKENS`, per column. The next block overwrites them, and some are views
        of the input, which must not be written to.
    """
    flat = [column.values for column in columns if isinstance(column, Ragged)]
    if len(flat) == len(columns):
        yield from _cut(flat, dtypes)
        return
    lengths = [array.size for array in columns[0]]
    buffers = [np.empty(min(BLOCK_TOKENS, sum(lengths)), dtype) for dtype in dtypes]

    def joined(first: int, last: int, size: int) -> tuple[np.ndarray, ...]:
        # Joins and converts in one pass; no other way to do both takes one call for several sequences.
        return tuple(np.concatenate(column[first:last], out=out[:size]) for column, out in zip(columns, buffers))

    first = held = 0
    for index, length in enumerate(lengths):
        if held and held + length > BLOCK_TOKENS:
            yield joined(first, index, held)
            first, held = index, 0
        if length <= BLOCK_TOKENS:
            held += length
            continue
        for at in range(0, length, BLOCK_TOKENS):
            parts = [column[index][at : at + BLOCK_TOKENS] for column in columns]
            yield tuple(np.concatenate([part], out=out[: part.size]) for part, out in zip(parts, buffers))
        first = index + 1
    if held:
        yield joined(first, len(lengths), held)


def _cut(columns: Sequence[np.ndarray], dtypes: Sequence[np.dtype | type]) -> Iterator[tuple[np.ndarray, ...]]:
    """Blocks of columns that are stored end to end already."""
    size = columns[0].size
    buffers = [
        None if column.dtype == dtype else np.empty(min(BLOCK_TOKENS, size), dtype)
        for column, dtype in zip(columns, dtypes)
    ]
    for start in range(0, size, BLOCK_TOKENS):
        parts = [column[start : start + BLOCK_TOKENS] for column in columns]
        for index, (part, buffer) in enumerate(zip(parts, buffers)):
            if buffer is not None:
                parts[index] = buffer[: part.size]
                np.copyto(parts[index], part)
        yield tuple(parts)


def sequence_blocks(*columns: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    """Iterate over whole sequences, many short ones at once, a long one alone.

    Yields:
        The lengths of the next sequences, shape (S,), 0 < S <= `BLOCK_TOKENS`, and of each column their values, shape
        (sum of the lengths,); some are views of the input.
    """
    first = columns[0]
    lengths = first.lengths if isinstance(first, Ragged) else np.array([array.size for array in first])
    ends = np.cumsum(lengths, dtype=np.int64)
    start = done = 0
    while start < lengths.size:
        stop = int(np.searchsorted(ends, done + BLOCK_TOKENS, side="right"))
        stop = max(start + 1, min(stop, start + BLOCK_TOKENS))
        end = int(ends[stop - 1])
        yield lengths[start:stop], *(_between(column, start, stop, done, end) for column in columns)
        start, done = stop, end


def _between(column: Sequence[np.ndarray], start: int, stop: int, first: int, last: int) -> np.ndarray:
    """The values of sequences from `start` to `stop`, which are those from `first` to `last`."""
    return column.values[first:last] if isinstance(column, Ragged) else np.concatenate(column[start:stop])


def dot(first: np.ndarray, second: np.ndarray) -> float:
    """The sum of products of two float64 arrays of shape (N,); not finite if a product or the sum is not."""
    whole = first.size - first.size % _ROW_TOKENS
    if not whole:
        return float(np.dot(first, second))
    rows = np.vecdot(first[:whole].reshape(-1, _ROW_TOKENS), second[:whole].reshape(-1, _ROW_TOKENS))
    return float(rows.sum()) + (float(np.dot(first[whole:], second[whole:])) if whole < first.size else 0.0)


def total(values: np.ndarray) -> float:
    """The sum of a float64 array of shape (N,), as exact as the module says; not finite if there is none."""
    if not values.size:
        return 0.0
    return exact_sum(np.add.reduceat(values, np.arange(0, values.size, BLOCK_TOKENS)).tolist())


def exact_total(values: np.ndarray) -> float:
    """The sum of a float array of shape (N,), rounded once; added block by block, so that other threads can run."""
    lists = (values[at : at + BLOCK_TOKENS].tolist() for at in range(0, values.size, BLOCK_TOKENS))
    return exact_sum(itertools.chain.from_iterable(lists))


def count_values(column: Sequence[np.ndarray]) -> int:
    """How many values all sequences have."""
    return column.values.size if isinstance(column, Ragged) else sum(map(len, column))


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; NaN if there is none, as finite values exceed float64 or infinities have both signs."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan
