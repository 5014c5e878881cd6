"""Arrays on their way to the wire and back: dtype + shape + little-endian bytes <-> numpy, without copying.

Every bit survives: NaN payloads, infinities, -0.0. numpy has no bfloat16, so such arrays stay a `Tensor`; `floats`
turns either into something to compute with.

A tensor without dimensions on the wire is one-dimensional, and its data give its length. So a zero-dimensional array
arrives with shape (1,).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.tensors import Array, Dtype, Tensor

__all__ = ["MAX_DIMENSIONS", "as_array", "floats", "from_tensor", "stored_like", "to_tensor"]

MAX_DIMENSIONS = 32
"""Dimensions of a tensor; numpy allows 64."""

_NUMPY: dict[Dtype, np.dtype] = {
    Dtype.U8: np.dtype("u1"),
    Dtype.BOOL: np.dtype("?"),
    Dtype.I32: np.dtype("<i4"),
    Dtype.I64: np.dtype("<i8"),
    Dtype.F16: np.dtype("<f2"),
    Dtype.F32: np.dtype("<f4"),
    Dtype.F64: np.dtype("<f8"),
}
_DTYPES: dict[str, Dtype] = {dtype.str: name for name, dtype in _NUMPY.items()}
_ITEM_BYTES: dict[Dtype, int] = {Dtype.BF16: 2, **{name: dtype.itemsize for name, dtype in _NUMPY.items()}}
# Smaller integer types, which the wire lacks, fit exactly into one that it has; uint64 does not.
_WIDENED: dict[str, type[np.signedinteger[Any]]] = {
    "int8": np.int32,
    "int16": np.int32,
    "uint16": np.int32,
    "uint32": np.int64,
}


def as_array(value: Any, *, field: str) -> Array:
    """Convert whatever a caller passes as an array.

    numpy arrays are returned unchanged. Also accepted are lists, torch tensors (on any device, bf16 included), anything
    that numpy reads (`__array__`, `__dlpack__`, buffers), and objects like tinker's TensorData (`to_numpy()`, or
    `data`, `dtype` and `shape`).

    Raises:
        InvalidField: it is ragged, or contains objects, text, complex numbers or unsigned 64-bit integers.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return _accepted(value, field)
    try:
        read = _read(value)
        return read if isinstance(read, Tensor) else _accepted(read, field)
    except (TypeError, ValueError, RuntimeError, BufferError, OverflowError) as error:
        raise InvalidField(field, f"cannot be read as an array: {error}") from error


def to_tensor(array: Array) -> Tensor:
    """The tensor that carries an array; shares its memory if that is little-endian and C-contiguous.

    Raises:
        InvalidField: the array has an element type or more dimensions than the wire has.
    """
    if isinstance(array, Tensor):
        return array
    accepted = _accepted(array, "array")
    if isinstance(accepted, Tensor):
        return accepted
    little = accepted.dtype.newbyteorder("<")
    array = np.ascontiguousarray(accepted, dtype=little)
    if array.ndim > MAX_DIMENSIONS:
        raise InvalidField("array", f"has {array.ndim} dimensions, at most {MAX_DIMENSIONS} can be sent")
    return Tensor(dtype=_DTYPES[little.str], shape=array.shape, data=array.reshape(-1).view(np.uint8).data)


def from_tensor(tensor: Tensor, field: str) -> Array:
    """The array that a tensor carries: a read-only view of its bytes, or the checked tensor itself for bf16.

    An empty shape means one dimension; its length follows from the data.

    Raises:
        InvalidField: a dimension is negative, there are too many of them, the bytes do not fit dtype and shape, or a
            bool is neither 0 nor 1.
    """
    shape = _checked_shape(tensor, field)
    if tensor.dtype is Dtype.BF16:
        return tensor if shape == tensor.shape else Tensor(dtype=tensor.dtype, shape=shape, data=tensor.data)
    try:
        array = np.frombuffer(tensor.data, _NUMPY[tensor.dtype]).reshape(shape)
    except ValueError as error:
        # A zero next to dimensions that numpy cannot multiply.
        raise InvalidField(field, f"has shape {list(shape)}: {error}") from error
    if tensor.dtype is Dtype.BOOL and array.size and array.view(np.uint8).max() > 1:
        raise InvalidField(field, "has a bool that is neither 0 nor 1")
    array.flags.writeable = False
    return array


def floats(array: Array, field: str) -> np.ndarray:
    """The same numbers, to compute with: float32 for f16, bf16 and f32, float64 for all others.

    f16 and bf16 are widened exactly; float32 and float64 are not copied.

    Raises:
        InvalidField: the tensor's bytes do not fit its dtype and shape.
    """
    if isinstance(array, Tensor):
        checked = from_tensor(array, field)
        if isinstance(checked, Tensor):
            # A bfloat16 is the upper half of a float32.
            halves = np.frombuffer(checked.data, "<u2").astype(np.uint32)
            return (halves << np.uint32(16)).view(np.float32).reshape(checked.shape)
        array = checked
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    return array.astype(np.float64, copy=False)


def stored_like(values: np.ndarray, original: Array) -> Array:
    """Computed numbers, converted to the dtype of their inputs: rounded to the nearest, ties to even."""
    if isinstance(original, np.ndarray):
        return values.astype(original.dtype, copy=False)
    bits = _rounded_to_odd(values).view(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    # Rounding up would turn a NaN whose bits are mostly ones into a zero; any quiet NaN is as good.
    return _bfloat16(np.where(np.isnan(values), np.uint32(0x7FC0), upper).astype(np.uint16))


def _rounded_to_odd(values: np.ndarray) -> np.ndarray:
    """float32 with the last bit 1 if digits were lost: rounding it gives what rounding the exact value would."""
    with np.errstate(over="ignore"):  # larger values become the largest float32
        rounded = values.astype(np.float32)
    if values.dtype.itemsize <= rounded.dtype.itemsize:
        return rounded
    bits = rounded.view(np.uint32)
    away = np.abs(rounded) > np.abs(values)
    lost = (rounded != values) & ~np.isnan(values)
    return np.where(lost, (bits - away) | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def _checked_shape(tensor: Tensor, field: str) -> tuple[int, ...]:
    shape, size, item = tensor.shape, memoryview(tensor.data).nbytes, _ITEM_BYTES[tensor.dtype]
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidField(field, f"has {len(shape)} dimensions, at most {MAX_DIMENSIONS} are accepted")
    if any(dimension < 0 for dimension in shape):
        raise InvalidField(field, f"has shape {list(shape)}: a dimension is negative")
    if not shape:
        if size % item:
            raise InvalidField(field, f"has {size} bytes, not a multiple of the {item} of {tensor.dtype}")
        return (size // item,)
    if (expected := math.prod(shape) * item) != size:
        raise InvalidField(field, f"has {size} bytes, but {tensor.dtype} of shape {list(shape)} takes {expected}")
    return shape


def _accepted(array: np.ndarray, field: str) -> Array:
    dtype = array.dtype
    if dtype.newbyteorder("<").str in _DTYPES:
        return array
    if dtype.name in _WIDENED:
        return array.astype(_WIDENED[dtype.name])
    if dtype.name == "bfloat16":  # of ml_dtypes, which JAX uses
        return _bfloat16(np.ascontiguousarray(array).view(np.uint16))
    raise InvalidField(field, f"has elements of type {dtype.name}, which tensors do not support")


def _read(value: Any) -> Array:
    if callable(getattr(value, "detach", None)) and callable(getattr(value, "numpy", None)):
        return _read_torch(value)
    if callable(getattr(value, "to_numpy", None)):
        return np.asarray(value.to_numpy())
    if isinstance(getattr(value, "dtype", None), str) and hasattr(value, "data"):
        array = np.asarray(value.data, dtype=value.dtype)
        return array if getattr(value, "shape", None) is None else array.reshape(value.shape)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _read_torch(value: Any) -> Array:
    tensor = value.detach().cpu()
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.numpy()
    # A caller that passes a torch tensor has imported torch; this module never does.
    bits = tensor.contiguous().view(sys.modules["torch"].int16).numpy()
    return _bfloat16(bits.view(np.uint16))


def _bfloat16(bits: np.ndarray) -> Tensor:
    little = np.ascontiguousarray(bits, dtype="<u2")
    return Tensor(dtype=Dtype.BF16, shape=little.shape, data=little.reshape(-1).view(np.uint8).data)
