"""Arrays of sequences, as requests have them: whether they belong together, their sums, reasons for no mean.

They belong together if there is one of each kind per sequence, of one dimension and of equal length.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Ragged

__all__ = [
    "BEYOND_FLOAT64",
    "BLOCK_TOKENS",
    "MAX_CANCELLATION",
    "NO_ACTION_TOKENS",
    "Defects",
    "blocks",
    "check_column",
    "check_sequences",
    "count_values",
    "dot",
    "exact_sum",
    "exact_total",
    "input_field",
    "sequence_blocks",
    "share",
    "total",
]

# Reasons why values have no mean, with the same wording everywhere: "3 of 1,024 log-probabilities are NaN".

BEYOND_FLOAT64 = "the sum is beyond float64"
"""Every value is finite, but the result is not."""
NO_ACTION_TOKENS = "no action tokens"
"""A mean over nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """Values that are not finite among those that count."""

    nan: int = 0
    """NaN."""
    minus_inf: int = 0
    """-inf; as a log-probability, a token that the model considers impossible."""
    plus_inf: int = 0
    """+inf; no distribution has such a log-probability."""

    @classmethod
    def among(cls, values: np.ndarray) -> Defects:
        """Count them in floats of any shape."""
        return cls(
            nan=int(np.count_nonzero(np.isnan(values))),
            minus_inf=int(np.count_nonzero(np.isneginf(values))),
            plus_inf=int(np.count_nonzero(np.isposinf(values))),
        )

    def __add__(self, other: Defects) -> Defects:
        return Defects(
            nan=self.nan + other.nan,
            minus_inf=self.minus_inf + other.minus_inf,
            plus_inf=self.plus_inf + other.plus_inf,
        )

    def reason(self, total: int, what: str = "log-probabilities", *, of: str = "") -> str:
        """The worst of them in words; empty if there is none.

        Args:
            total: how many values count.
            what: the noun for the values, plural.
            of: their owner, added in parentheses.
        """
        for count, kind in ((self.nan, "NaN"), (self.minus_inf, "-inf"), (self.plus_inf, "+inf")):
            if count:
                return share(count, total, what, kind) + (f" ({of})" if of else "")
        return ""


def share(count: int, total: int, what: str, kind: str) -> str:
    """How many of them are of this kind, in words."""
    return f"{count:,} of {total:,} {what} {'is' if count == 1 else 'are'} {kind}"


# Sums over the tokens of many sequences: fast, in float64, and exact enough for every use here.
#
# Tokens are summed in blocks that stay in the cache, with BLAS in rows of `_ROW_TOKENS`, and the sums of the blocks are
# added exactly. A running sum never has more than some thousand terms, so the error stays below `_ROW_TOKENS` * 2^-53
# of the sum of absolute terms: 1e-12 at worst, in practice the last digits, whatever the number of tokens and their
# order. This also holds for terms of both signs that cancel.

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


def input_field(key: str) -> str:
    """The path of entry `key` of a datum for errors, with `{}` for the index of the datum."""
    return f'data[{{}}].loss_fn_inputs["{key}"]'


def check_sequences(
    logprobs: Sequence[np.ndarray],
    others: Mapping[str, Sequence[np.ndarray]],
    *,
    field: str = input_field("logprobs"),
    data: str = "data",
) -> None:
    """Refuse arrays that do not belong together.

    Args:
        logprobs: one array of shape (T_i,) per sequence, which define the lengths.
        others: further arrays, by the name of an entry in errors, with `{}` for its index: `training_logprobs[{}]`.
        field: likewise, for log-probabilities.
        data: the name of the data in errors.

    Raises:
        InvalidField: there is no sequence, a column has another number of arrays, or an array has another shape, more
            than one dimension, or is not numeric.
    """
    if not logprobs:
        raise InvalidField(data, "is empty")
    for name, column in others.items():
        if len(column) != len(logprobs):
            raise InvalidField(name.partition("[{}]")[0], f"has {len(column)} tensors for {len(logprobs)} data")
    if _fit(logprobs, *others.values()):
        return
    shapes = [array.shape for array in logprobs]
    for index, shape in enumerate(shapes):
        if len(shape) != 1:
            check_column(logprobs[index], field.format(index))
    for name, column in {field: logprobs, **others}.items():
        # Checked as lists first: in nearly every request all arrays are right.
        if [array.shape for array in column] != shapes or not _NUMBERS.issuperset(array.dtype.kind for array in column):
            for index, (array, shape) in enumerate(zip(column, shapes)):
                if array.shape != shape:
                    raise InvalidField(name.format(index), f"has shape {array.shape}, logprobs {shape}")
                check_column(array, name.format(index))


def _fit(*columns: Sequence[np.ndarray]) -> bool:
    """Whether all are ragged columns of numbers with the same lengths."""
    ragged = [column for column in columns if isinstance(column, Ragged)]
    return (
        len(ragged) == len(columns)
        and all(
            column.lengths is ragged[0].lengths or np.array_equal(column.lengths, ragged[0].lengths)
            for column in ragged
        )
        and all(column.values.dtype.kind in _NUMBERS for column in ragged)
    )


def check_column(
    array: np.ndarray, field: str, *, kinds: str = "fiub", length: int | None = None, of: str = ""
) -> None:
    """Refuse an array that is not one dimension of numbers, or has the wrong length.

    Args:
        array: the column.
        field: its name in errors.
        kinds: numpy's letters for the accepted element types.
        length: how many values it should have; any number if None.
        of: the plural noun for what the length counts.

    Raises:
        InvalidField: it is one of these.
    """
    if array.ndim != 1:
        raise InvalidField(field, f"has shape {array.shape}, one dimension is needed")
    if array.dtype.kind not in kinds:
        needed = "numbers" if "f" in kinds and "i" in kinds else _KINDS[kinds[0]]
        raise InvalidField(field, f"holds {array.dtype}, {needed} are needed")
    if length is not None and array.size != length:
        raise InvalidField(field, f"has {array.size:,} values for {length:,} {of}")


_NUMBERS = frozenset("fiub")
_KINDS = {"f": "floats", "i": "integers", "b": "bools"}
