"""Columns of many sequences <-> the bytes of `Columns`: one tensor a column, whatever the number of sequences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.codec.bulk import PLAIN_DTYPES, Encoder, inputs_at, vector_from_v1
from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, split
from crucible_bridge.codec.fields import entry
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Array, Ragged
from crucible_bridge.v1 import types_pb2

__all__ = ["add_columns", "columns_at"]

_LENGTHS, _VALUES = types_pb2.Columns.LENGTHS_FIELD_NUMBER, types_pb2.Columns.VALUES_FIELD_NUMBER


def add_columns(pieces: Encoder, number: int, columns: Mapping[str, Sequence[Array]]) -> bool:
    """Add columns to a field, if possible: each must have one plain dtype, and all must have the same lengths.

    Returns:
        Whether they were added. If not, each tensor must be sent by itself; the worker reports what does not fit.
    """
    joinable = {key: found for key, column in columns.items() if (found := _joinable(column)) is not None}
    shapes = [[array.shape for array in column] for column in joinable.values()]
    if len(joinable) < len(columns) or any(found != shapes[0] for found in shapes):
        return False
    inner = Encoder()
    inner.add_tensors(_LENGTHS, [np.array(shapes[0], np.int64).ravel()])
    for key, column in joinable.items():
        inner.add_column(_VALUES, key, column)
    pieces.add_encoded(number, inner)
    return True


def columns_at(
    data: bytes, spans: Sequence[FieldRange], keys: Sequence[str], *, stored: Collection[str] = ()
) -> list[Ragged]:
    """Read columns in place, as views of the bytes.

    Args:
        data: the bytes.
        spans: positions of the message's parts.
        keys: the columns to read.
        stored: those whose f16 is not widened. bf16, which numpy lacks, is widened, and the original is added.

    Raises:
        InvalidField: a column is missing, malformed, or of another length.
        NeedsFallback: the caller must parse the bytes with protobuf.
    """
    if len(spans) != 1:
        raise NeedsFallback  # the parts of one message
    found, _ = split(data, spans[0], (_LENGTHS, _VALUES))
    match found[_LENGTHS]:
        case []:
            raise InvalidField("columns.lengths", "is missing")
        case [span]:
            lengths = vector_from_v1(types_pb2.Tensor.FromString(data[slice(*span)]), "columns.lengths")
        case _:
            raise NeedsFallback
    if lengths.dtype.kind != "i":
        raise InvalidField("columns.lengths", f"holds {lengths.dtype}, i32 or i64 is needed")
    if not lengths.size:
        raise InvalidField("columns.lengths", "is empty")
    if (shortest := int(lengths.min())) < 0:
        raise InvalidField("columns.lengths", f"holds {shortest}, a length is at least 0")
    found = inputs_at(data, spans, keys, "columns.values", stored=stored, number=_VALUES)
    return _parted({key: values for key, (values,) in zip(keys, found)}, lengths)


def _joinable(column: Sequence[Array]) -> Sequence[np.ndarray] | None:
    """The column, if its arrays can be sent end to end as they are in memory."""
    arrays = [array for array in column if isinstance(array, np.ndarray) and array.ndim == 1]
    plain = len({array.dtype for array in arrays}) == 1 and arrays[0].dtype in PLAIN_DTYPES
    if not plain or len(arrays) < len(column) or not all(array.flags.c_contiguous for array in arrays):
        return None
    return arrays


def _parted(columns: Mapping[str, Array], lengths: np.ndarray) -> list[Ragged]:
    longest, parted = int(lengths.max()), list[Ragged]()
    for key, values in columns.items():
        field = entry("columns.values", key)
        stored = None if isinstance(values, np.ndarray) else values
        values = values if isinstance(values, np.ndarray) else floats(values, field)
        # Checked first, as the sum of such lengths might exceed int64.
        if longest > values.size:
            raise InvalidField(field, f"has {values.size:,} values, a sequence alone {longest:,}")
        if parted and values.size == parted[0].values.size:
            parted.append(parted[0].like(values, stored=stored))
        elif (total := int(lengths.sum(dtype=np.int64))) == values.size:
            parted.append(Ragged(values, lengths, stored=stored))
        else:
            raise InvalidField(field, f"has {values.size:,} values, all sequences {total:,}")
    return parted
