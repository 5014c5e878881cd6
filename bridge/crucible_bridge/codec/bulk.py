"""Many tensors in one message: written with one copy, read as views.

Protobuf itself makes an object of every tensor and copies it three times. That takes 14 ms for 512 sequences of 2,048
tokens (9.4 MB); transport and arithmetic take 9 ms. So the bytes of bulky fields are assembled here: the head of each
tensor, then its array as it is in memory, all joined at the end. The result is an ordinary message that any parser
reads. Protobuf writes the scalar fields, and they are appended, as messages may be concatenated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import Message

from crucible_bridge.arrays import floats, to_tensor
from crucible_bridge.codec.field_ranges import FieldRange, NeedsFallback, content_range, varint
from crucible_bridge.codec.fields import EnumPair, entry
from crucible_bridge.codec.tensors import array_from_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Array, Dtype
from crucible_bridge.v1 import types_pb2

__all__ = [
    "PLAIN_DTYPES",
    "Decode",
    "Encoder",
    "inputs_at",
    "stored_array_from_v1",
    "stored_from_v1",
    "tensors_at",
    "vector_from_v1",
]

_HEADS = 8192
"""Heads that are cached: they differ only by the lengths of sequences."""

# In little-endian memory, and valid whatever their values are; all other types take the slower path.
_PLAIN: Mapping[int, np.dtype] = {
    types_pb2.DTYPE_U8: np.dtype("u1"),
    types_pb2.DTYPE_I32: np.dtype("<i4"),
    types_pb2.DTYPE_I64: np.dtype("<i8"),
    types_pb2.DTYPE_F32: np.dtype("<f4"),
    types_pb2.DTYPE_F64: np.dtype("<f8"),
}
_NUMBERS: Mapping[np.dtype, int] = {dtype: number for number, dtype in _PLAIN.items()}
PLAIN_DTYPES = frozenset(_NUMBERS)
"""Element types that are sent as they are in memory."""
_DTYPES = EnumPair(Dtype, types_pb2.Dtype, "DTYPE_")
_LENGTH_DELIMITED = 2
_KEY = 1 << 3 | _LENGTH_DELIMITED
_DTYPE, _SHAPE, _DATA = (
    types_pb2.Tensor.DTYPE_FIELD_NUMBER,
    types_pb2.Tensor.SHAPE_FIELD_NUMBER,
    types_pb2.Tensor.DATA_FIELD_NUMBER,
)


class Encoder:
    """The pieces of a message, in order; `joined` copies them once."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self.size = 0
        """Bytes so far."""

    def add_bytes(self, number: int, content: bytes) -> None:
        """Add a field of bytes, or of a message."""
        self._add(_head(number, len(content)), content, len(content))

    def add_encoded(self, number: int, content: Encoder) -> None:
        """Add a field whose message is given in pieces."""
        head = _head(number, content.size)
        self._pieces.append(head)
        self._pieces += content._pieces
        self.size += len(head) + content.size

    def add_tensors(self, number: int, arrays: Iterable[Array]) -> None:
        """Add arrays to a repeated field of tensors."""
        for array in arrays:
            code, shape, content, size = _content(array)
            self._add(_tensor_head(number, code, shape, size), content, size)

    def add_entry(self, number: int, key: str, array: Array) -> None:
        """Add an array to a map of tensors."""
        code, shape, content, size = _content(array)
        self._add(_entry_head(number, key, code, shape, size), content, size)

    def add_column(self, number: int, key: str, arrays: Sequence[np.ndarray]) -> None:
        """Add vectors of one plain dtype, end to end, to a map of tensors."""
        dtype = arrays[0].dtype
        count = sum(map(len, arrays))
        head = _entry_head(number, key, _NUMBERS[dtype], (count,), count * dtype.itemsize)
        self._pieces.append(head)
        self._pieces += arrays
        self.size += len(head) + count * dtype.itemsize

    def joined(self, rest: Message) -> bytes:
        """The whole message: the pieces, and the fields that `rest` has."""
        return b"".join((*self._pieces, rest.SerializeToString()))

    def _add(self, head: bytes, content: Any, size: int) -> None:
        self._pieces.append(head)
        self._pieces.append(content)
        self.size += len(head) + size


_Known = dict[int, tuple[bytes, np.dtype, int]]
"""Keys are sizes of what ends with a tensor; values the bytes before the elements, their type and number."""

Decode = Callable[[types_pb2.Tensor, str], Array]
"""Decodes a tensor, given its path."""


def vector_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    """Decode numbers to compute with, shape (n,): a read-only view of the message's bytes; f16 and bf16 are widened.

    Raises:
        InvalidField: dtype, shape and bytes do not fit each other, or there is more than one dimension.
    """
    array = stored_from_v1(message, field)
    return array if isinstance(array, np.ndarray) and array.dtype != np.float16 else floats(array, field)


def stored_from_v1(message: types_pb2.Tensor, field: str) -> Array:
    """Decode numbers unchanged, shape (n,): like `vector_from_v1`, but f16 and bf16 are not widened.

    Raises:
        InvalidField: dtype, shape and bytes do not fit each other, or there is more than one dimension.
    """
    array = array_from_v1(message, field)
    if len(array.shape) != 1:
        raise InvalidField(field, f"has shape {list(array.shape)}, one dimension is needed")
    return array


def stored_array_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    """Decode numbers unchanged, shape (n,), of an element type that numpy has.

    Raises:
        InvalidField: as for `stored_from_v1`, or the elements are bf16.
    """
    array = stored_from_v1(message, field)
    if not isinstance(array, np.ndarray):
        raise InvalidField(field, f"has {array.dtype}, must have i32 or f32")
    return array


def tensors_at(data: bytes, spans: Iterable[FieldRange], field: str, *, decode: Decode = vector_from_v1) -> list[Any]:
    """Read tensors in place: as views of the bytes, or by `decode` if they need conversion.

    Raises:
        InvalidField: a tensor is malformed.
        NeedsFallback: the caller must parse the bytes with protobuf.
    """
    known: _Known = {}
    vectors: list[Any] = []
    for index, span in enumerate(spans):
        view = _recalled(data, span, known)
        if view is None:
            view = _seen(data, span, span, known)
        vectors.append(_decoded(data, span, decode, f"{field}[{index}]") if view is None else view)
    return vectors


def inputs_at(
    data: bytes,
    spans: Iterable[FieldRange],
    keys: Sequence[str],
    field: str = "data[{}].loss_fn_inputs",
    *,
    stored: Collection[str] = (),
    number: int = types_pb2.Datum.LOSS_FN_INPUTS_FIELD_NUMBER,
) -> list[list[Any]]:
    """Read some tensors of a map in each of several messages, in place: a column per key, an array per message.

    Args:
        data: the bytes.
        spans: the position of each message: a Datum, unless `number` is the field of another one.
        keys: the keys to read.
        field: path of the map, with `{}` for the index of the message.
        stored: keys whose f16 and bf16 are not widened.
        number: the map's field.

    Raises:
        InvalidField: a message lacks a key, or a tensor is malformed.
        NeedsFallback: the caller must parse the bytes with protobuf.
    """
    known: dict[str, _Known] = {key: {} for key in keys}
    names = {key.encode(): key for key in keys}
    columns: dict[str, list[Any]] = {key: [] for key in keys}
    for index, (at, end) in enumerate(spans):
        found: dict[str, Any] = {}
        while at < end:
            found_number, entry_span, at = content_range(data, at)
            if found_number != number or entry_span is None:
                continue
            start = entry_span[0]
            # An entry in the form that every encoder writes: the key in field 1, the tensor in field 2.
            if data[start] != _KEY or at > end:
                raise NeedsFallback
            size = data[start + 1]
            value = start + 2 + size
            key = names.get(data[start + 2 : value])
            if key is None:
                continue
            view = _recalled(data, entry_span, known[key])
            if view is None:
                inner, span, stop = content_range(data, value)
                if inner != 2 or span is None or stop != at:
                    raise NeedsFallback
                view = _seen(data, entry_span, span, known[key])
                if view is None:
                    decode = stored_from_v1 if key in stored else vector_from_v1
                    view = _decoded(data, span, decode, entry(field.format(index), key))
            found[key] = view
        if at != end:
            raise NeedsFallback
        for key, column in columns.items():
            if key not in found:
                raise InvalidField(entry(field.format(index), key), "is missing")
            column.append(found[key])
    return list(columns.values())


def _decoded(data: bytes, span: FieldRange, decode: Decode, field: str) -> Array:
    return decode(types_pb2.Tensor.FromString(data[slice(*span)]), field)


def _recalled(data: bytes, span: FieldRange, known: _Known) -> np.ndarray | None:
    """A view of a tensor at the end of a span, if one of that size had the same bytes before its elements."""
    start, end = span
    seen = known.get(end - start)
    if seen is None or not data.startswith(seen[0], start):
        return None
    return np.frombuffer(data, seen[1], seen[2], start + len(seen[0]))


def _seen(data: bytes, outer: FieldRange, span: FieldRange, known: _Known) -> np.ndarray | None:
    """A view of the tensor at a span, cached by the size of `outer`, which ends with it; None if not plain."""
    at, end = span
    number, shape, elements = 0, None, None
    while at < end:
        field, content, stop = content_range(data, at)
        if field == _DTYPE and stop - at == 2:
            number = data[at + 1]
        elif field == _SHAPE and content is not None and shape is None:  # protobuf joins the parts of a packed one
            shape = content
        elif field == _DATA and content is not None:
            elements = content
        else:
            raise NeedsFallback
        at = stop
    dtype = _PLAIN.get(number)
    if at != end:
        raise NeedsFallback
    if dtype is None or elements is None or elements[1] != end:
        return None
    count, odd = divmod(elements[1] - elements[0], dtype.itemsize)
    if odd or (shape is not None and varint(data, shape[0]) != (count, shape[1])):
        return None
    known[outer[1] - outer[0]] = (data[outer[0] : elements[0]], dtype, count)
    return np.frombuffer(data, dtype, count, elements[0])


def _content(array: Array) -> tuple[int, tuple[int, ...], Any, int]:
    """Dtype, shape, bytes and their number; the array's own memory if it can be sent unchanged."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:
        code = _NUMBERS.get(array.dtype)
        if code is not None:
            return code, array.shape, array, array.nbytes
    tensor = to_tensor(array)
    return _DTYPES.to_v1(tensor.dtype), tensor.shape, tensor.data, memoryview(tensor.data).nbytes


def _encoded(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _head(number: int, size: int) -> bytes:
    """The bytes before a length-delimited field's content."""
    return _encoded(number << 3 | _LENGTH_DELIMITED) + _encoded(size)


@functools.lru_cache(_HEADS)
def _tensor_head(number: int, code: int, shape: tuple[int, ...], size: int) -> bytes:
    """The bytes before a tensor's elements, in a field of that number."""
    inner = _encoded(_DTYPE << 3) + _encoded(code)
    if len(shape) != 1:  # the one dimension of a vector follows from its data
        dimensions = b"".join(map(_encoded, shape))
        inner += _head(_SHAPE, len(dimensions)) + dimensions
    inner += _head(_DATA, size)
    return _head(number, len(inner) + size) + inner


@functools.lru_cache(_HEADS)
def _entry_head(number: int, key: str, code: int, shape: tuple[int, ...], size: int) -> bytes:
    """The bytes before a tensor's elements, in a map of that number."""
    name = key.encode()
    inner = _head(1, len(name)) + name + _tensor_head(2, code, shape, size)
    return _head(number, len(inner) + size) + inner
