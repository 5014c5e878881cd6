"""Whether the arrays of a request belong together: one of each kind per sequence, one dimension, equal lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Ragged

__all__ = ["check_column", "check_sequences", "input_field"]


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
