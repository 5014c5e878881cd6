"""Parameters of metrics over tokens: arrays by name, one sequence or many, without a Datum around them.

An array of one sequence is a list of numbers, arrays of many are a list of lists, or one array with two dimensions, or
one with separate `lengths`. They become the columns of a request, written with one copy of their bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import to_tensor
from crucible_bridge.codec.bulk import PLAIN_DTYPES, Encoder
from crucible_bridge.codec.fields import entry
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Array, Tensor
from crucible_bridge.v1 import types_pb2
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.parameters import fill
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.tools_arrays import read_numbers
from crucible_worker.snakepit.tools_fields import fields_reader, take_fields
from crucible_worker.snakepit.tools_values import NON_FINITE

__all__ = ["LENGTHS", "columns_reader", "write_penalty"]

LENGTHS = "lengths"
"""The parameter with the length of each sequence, for arrays that are stored end to end."""

_LENGTHS, _VALUES = types_pb2.Columns.LENGTHS_FIELD_NUMBER, types_pb2.Columns.VALUES_FIELD_NUMBER
_WHOLE = ("data", "columns")
"""Parameters that make the tool read the request in the protos' form."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SequenceColumn:
    """An array of all sequences."""

    name: str
    """The caller's name for it."""
    parts: Sequence[Array]
    """Its values, end to end."""
    lengths: np.ndarray | None
    """Values of each sequence; None if the array does not show it."""


def columns_reader(
    request: Any, columns: Mapping[str, tuple[str, ...]], *, names: Mapping[str, tuple[str, ...]] | None = None
) -> Callable[[Arguments], Any]:
    """A function that reads arrays by name into a request's columns; with `data` or `columns`, the request's fields.

    Args:
        request: the message.
        columns: by the name of a column, other names for it.
        names: other names for the request's further fields.
    """
    whole = fields_reader(request, names=names)
    scalars = [field for field in request.DESCRIPTOR.fields if field.message_type is None]

    def read(arguments: Arguments) -> Any:
        if any(name in arguments.values for name in _WHOLE):
            return whole(arguments)
        found = {key: _column(arguments, (key, *others)) for key, others in columns.items()}
        lengths = _lengths(arguments, list(found.values()))
        arguments.renamed |= {entry("columns.values", key): column.name for key, column in found.items()}
        arguments.renamed[f"columns.{LENGTHS}"] = LENGTHS
        inner, outer = Encoder(), Encoder()
        inner.add_tensors(_LENGTHS, [lengths])
        for key, column in found.items():
            _add(inner, key, column)
        outer.add_encoded(request.COLUMNS_FIELD_NUMBER, inner)
        rest = request()
        fill(rest, take_fields(arguments, scalars, names or {}), "", arguments)
        return outer.joined(rest)

    return read


def _column(arguments: Arguments, names: Sequence[str]) -> _SequenceColumn:
    given = [name for name in names if name in arguments.values]
    described = [name for name in names if name in arguments.tensors]
    if len(given) + len(described) > 1:
        raise InvalidField((given + described)[1], f"is given with {(given + described)[0]}, which is the same")
    if not given and not described:
        raise InvalidField(names[0], "is not given")
    name = (given or described)[0]
    value = arguments.take(name) if given else name
    if isinstance(value, list | tuple) and value and not _is_number(arguments, value[0]):
        return _rows(arguments, name, value)
    array = arguments.array(value, name, name)
    match array.shape:
        case (_,):
            return _SequenceColumn(name=name, parts=[array], lengths=None)
        case (count, length):
            # Checked here already: rows without a value take no bytes, so their number is not limited by the message.
            if (limit := arguments.max_sequences) is not None and count > limit:
                raise InvalidField(name, f"has {count:,} sequences, at most {limit:,} are accepted")
            return _SequenceColumn(name=name, parts=[_flat(array)], lengths=np.full(count, length))
        case _:
            raise InvalidField(name, f"has shape {list(array.shape)}, one or two dimensions are needed")


def _is_number(arguments: Arguments, value: Any) -> bool:
    """Whether a list that begins with this value has numbers; "NaN" may also be the name of an array."""
    if isinstance(value, str):
        return value in NON_FINITE and value not in arguments.tensors
    return isinstance(value, int | float)


def _rows(arguments: Arguments, name: str, rows: Sequence[Any]) -> _SequenceColumn:
    """An array for each sequence."""
    if all(isinstance(row, list | tuple) for row in rows):
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = list(itertools.chain.from_iterable(rows))
        if all(isinstance(value, int | float) for value in values):
            return _SequenceColumn(name=name, parts=[read_numbers(values, name)], lengths=lengths)
    parts = [arguments.array(row, f"{name}[{index}]", f"{name}[{index}]") for index, row in enumerate(rows)]
    for index, part in enumerate(parts):
        if len(part.shape) != 1:
            raise InvalidField(f"{name}[{index}]", f"has shape {list(part.shape)}, one dimension is needed")
    return _SequenceColumn(name=name, parts=parts, lengths=np.array([part.shape[0] for part in parts], np.int64))


def _flat(array: Array) -> Array:
    if isinstance(array, np.ndarray):
        return array.reshape(-1)
    return Tensor(dtype=array.dtype, shape=(array.shape[0] * array.shape[1],), data=array.data)


def _lengths(arguments: Arguments, columns: Sequence[_SequenceColumn]) -> np.ndarray:
    """Values of each sequence, which all columns must agree on."""
    asked = arguments.take(LENGTHS)
    if asked is None and LENGTHS in arguments.tensors:
        asked = LENGTHS
    known = [column for column in columns if column.lengths is not None]
    arguments.noted["nested"] = bool(known)
    if asked is not None:
        lengths = arguments.array(asked, LENGTHS, LENGTHS)
        if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind not in "iu":
            raise InvalidField(LENGTHS, "is not a list of integers")
        first = LENGTHS
    elif known:
        lengths, first = known[0].lengths, known[0].name
        assert lengths is not None
    else:
        lengths, first = np.array([sum(part.shape[0] for part in columns[0].parts)]), columns[0].name
    for column in known:
        assert column.lengths is not None
        if len(column.lengths) != len(lengths):
            raise InvalidField(column.name, f"has {len(column.lengths):,} sequences, {first} has {len(lengths):,}")
        if (wrong := np.flatnonzero(column.lengths != lengths)).size:
            at = int(wrong[0])
            raise InvalidField(f"{column.name}[{at}]", f"has {column.lengths[at]:,} values, {first} {lengths[at]:,}")
    lengths = lengths.astype(np.int64)
    arguments.noted[LENGTHS] = lengths
    return lengths


def _add(pieces: Encoder, key: str, column: _SequenceColumn) -> None:
    parts = column.parts
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and {part.dtype for part in arrays} <= PLAIN_DTYPES:
        if len({part.dtype for part in arrays}) == 1:
            return pieces.add_column(_VALUES, key, [np.ascontiguousarray(part) for part in arrays])
        return pieces.add_entry(_VALUES, key, np.concatenate(arrays))
    tensors = [to_tensor(part) for part in parts]
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise InvalidField(column.name, "mixes element types")
    size = sum(tensor.shape[0] for tensor in tensors)
    joined = Tensor(dtype=tensors[0].dtype, shape=(size,), data=b"".join(tensor.data for tensor in tensors))
    return pieces.add_entry(_VALUES, key, joined)


def write_penalty(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    """Write the result of a KL penalty: advantages in the form in which they were given."""
    value = to_json(message, output)
    lengths = arguments.noted.get(LENGTHS)
    if lengths is None or not value["advantages"]:
        return value
    (advantages,) = value["advantages"]
    if not output.plain:
        return {**value, "advantages": advantages, LENGTHS: lengths.tolist()}
    if not arguments.noted["nested"]:
        return {**value, "advantages": advantages}
    ends = np.cumsum(lengths).tolist()
    return {**value, "advantages": [advantages[end - size : end] for end, size in zip(ends, lengths.tolist())]}
