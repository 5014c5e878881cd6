"""Arrays among a tool's parameters: lists of numbers, or bytes that a JSON parameter describes.

Bytes are in Snakepit's binary parameters, which have neither element type nor shape. So JSON has a description,
`{"dtype": "f32", "shape": [512, 2048]}`, with `binary` (the parameter's name; the array's name if absent) and `offset`
if several arrays share one parameter; or with `data`, base64, for few bytes.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crucible_bridge.arrays import MAX_DIMENSIONS, as_array, from_tensor
from crucible_bridge.codec.fields import child
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Array, Dtype, Tensor
from crucible_worker.snakepit.tools_values import NON_FINITE, wrong_type

__all__ = ["Binary", "dtype_from_json", "read_array", "read_numbers"]

_DTYPES: Mapping[str, Dtype] = {
    **{str(dtype): dtype for dtype in Dtype},
    "bfloat16": Dtype.BF16,
    "float16": Dtype.F16,
    "float32": Dtype.F32,
    "float64": Dtype.F64,
    "int32": Dtype.I32,
    "int64": Dtype.I64,
    "uint8": Dtype.U8,
}
_ITEM_BYTES: Mapping[Dtype, int] = {
    Dtype.U8: 1,
    Dtype.BOOL: 1,
    Dtype.F16: 2,
    Dtype.BF16: 2,
    Dtype.I32: 4,
    Dtype.F32: 4,
    Dtype.I64: 8,
    Dtype.F64: 8,
}
_DESCRIPTION = ("dtype", "shape", "binary", "offset", "data")

Binary = bytes | memoryview
"""A binary parameter: separate bytes, or a view of the request."""

Bytes = Callable[[str, str], Binary]
"""Returns a binary parameter's bytes, given its name and the path that refers to it."""


def dtype_from_json(value: Any, field: str) -> Dtype:
    """Read an element type: "f32", or numpy's and tinker's name, "float32".

    Raises:
        InvalidField: it is not an element type.
    """
    if not isinstance(value, str):
        raise wrong_type(field, value, "text")
    dtype = _DTYPES.get(value.lower())
    if dtype is None:
        raise InvalidField(field, f"is {value[:60]!r}, not one of {', '.join(Dtype)}")
    return dtype


def read_array(value: Any, name: str, field: str, binary: Bytes) -> Array:
    """Read an array: a view of the bytes if it is binary.

    Args:
        value: numbers in lists, or a description.
        name: of the binary parameter, if the description has none.
        field: path of the array.
        binary: finds a binary parameter.

    Raises:
        InvalidField: it is neither, or its bytes do not fit.
    """
    if isinstance(value, Mapping):
        return _described(value, name, field, binary)
    if isinstance(value, list | tuple):
        return read_numbers(value, field)
    raise wrong_type(field, value, "a list of numbers, or a description with dtype and shape,")


def read_numbers(values: Any, field: str) -> np.ndarray:
    """Read lists of numbers, of any depth: int64, float64 or bool.

    Raises:
        InvalidField: the lists are of different lengths, or have something else in them.
    """
    try:
        array = np.array(values)
    except ValueError as error:
        raise InvalidField(field, "has lists of different lengths, or too many levels of lists") from error
    if array.dtype.kind not in "biuf":
        # There is text, or something that is not a number: checked one by one, so that the error names it.
        array = np.array(_spelled_out(values, field), np.float64)
    read = as_array(array, field=field)
    assert isinstance(read, np.ndarray)
    return read


def _spelled_out(value: Any, field: str, depth: int = 0) -> Any:
    if isinstance(value, list | tuple):
        if depth == MAX_DIMENSIONS:
            raise InvalidField(field, f"is inside of {depth} lists, a tensor has at most {MAX_DIMENSIONS} dimensions")
        return [_spelled_out(each, f"{field}[{index}]", depth + 1) for index, each in enumerate(value)]
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, bool | int | float):
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise InvalidField(field, "is beyond 64 bits")
        return value
    raise wrong_type(field, value, "a number")


def _described(value: Mapping[Any, Any], name: str, field: str, binary: Bytes) -> Array:
    for key in value:
        if key not in _DESCRIPTION:
            known = ", ".join(_DESCRIPTION)
            raise InvalidField(
                child(field, str(key)[:60]), f"is unknown; there are {known}", reason=Reason.UNKNOWN_PARAMETER
            )
    if value.get("dtype") is None:
        raise InvalidField(child(field, "dtype"), "is missing")
    dtype = dtype_from_json(value["dtype"], child(field, "dtype"))
    shape = value.get("shape")
    if shape is not None and not (isinstance(shape, list | tuple) and all(map(_counts, shape))):
        raise wrong_type(child(field, "shape"), shape, "a list of dimensions, integers from 0,")
    if value.get("data") is not None:
        data = _base64(value["data"], child(field, "data"))
    else:
        asked = value.get("binary")
        if asked is not None and not isinstance(asked, str):
            raise wrong_type(child(field, "binary"), asked, "text")
        data = binary(asked or name, field)
        data = _part(data, value.get("offset"), None if shape is None else math.prod(shape) * _ITEM_BYTES[dtype], field)
    return from_tensor(Tensor(dtype=dtype, shape=tuple(shape or ()), data=data), field)


def _part(data: Binary, offset: Any, size: int | None, field: str) -> Binary:
    """The bytes from an offset on, as many as the shape takes; all of them without an offset."""
    if offset is None:
        return data
    path = child(field, "offset")
    if not _counts(offset):
        raise wrong_type(path, offset, "an integer from 0")
    end = len(data) if size is None else offset + size
    if offset > len(data) or end > len(data):
        raise InvalidField(path, f"is {offset}, beyond the {len(data):,} bytes")
    return memoryview(data)[offset:end]


def _base64(value: Any, field: str) -> bytes:
    if isinstance(value, bytes):  # msgpack has a bytes type
        return value
    if not isinstance(value, str):
        raise wrong_type(field, value, "base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidField(field, f"is not base64: {error}") from error


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
