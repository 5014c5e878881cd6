"""What an array is on the wire: a tensor of one of a few types of numbers."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

__all__ = ["Array", "Dtype", "Tensor"]


class Dtype(enum.StrEnum):
    """Element type of a tensor on the wire."""

    U8 = "u8"
    BOOL = "bool"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A dense array in its wire form: little-endian bytes, never interpreted, so that every bit survives.

    `crucible_bridge.arrays` turns it into numpy and back without copying; only bf16, which numpy does not have, stays
    in this form inside a Datum.
    """

    dtype: Dtype
    """Element type."""
    shape: tuple[int, ...]
    """Dimensions, row-major."""
    data: bytes | memoryview
    """Elements, little-endian."""


Array = np.ndarray | Tensor
"""An array of a Datum: numpy's, or a Tensor if numpy has no such element type (bf16)."""
