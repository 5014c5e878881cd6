"""Tensors and arrays <-> v1."""

from __future__ import annotations

from crucible_bridge.arrays import from_tensor, to_tensor
from crucible_bridge.codec.fields import EnumPair, child
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Array, Dtype, Tensor, TokensChunk
from crucible_bridge.v1 import types_pb2

__all__ = ["array_from_v1", "array_to_v1", "tensor_from_v1", "tensor_to_v1", "token_ids_from_v1"]

_DTYPE = EnumPair(Dtype, types_pb2.Dtype, "DTYPE_")


def tensor_to_v1(tensor: Tensor) -> types_pb2.Tensor:
    """Encode a tensor; its bytes are copied unchanged."""
    data = tensor.data if isinstance(tensor.data, bytes) else bytes(tensor.data)
    return types_pb2.Tensor(dtype=_DTYPE.to_v1(tensor.dtype), shape=tensor.shape, data=data)


def tensor_from_v1(message: types_pb2.Tensor, field: str) -> Tensor:
    """Decode a tensor; `from_tensor` checks whether its bytes fit."""
    dtype = _DTYPE.from_v1(message.dtype, child(field, "dtype"))
    return Tensor(dtype=dtype, shape=tuple(message.shape), data=message.data)


def array_to_v1(array: Array) -> types_pb2.Tensor:
    """Encode an array."""
    return tensor_to_v1(to_tensor(array))


def array_from_v1(message: types_pb2.Tensor, field: str) -> Array:
    """Decode an array, a read-only view of the message's bytes."""
    return from_tensor(tensor_from_v1(message, field), field)


def token_ids_from_v1(message: types_pb2.Tensor, field: str) -> TokensChunk:
    """Decode the token ids of a chunk; raises InvalidField if they are none."""
    tokens = array_from_v1(message, field)
    if isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.dtype.name not in ("int32", "int64"):
        raise InvalidField(
            field, f"has {tokens.dtype} of shape {list(tokens.shape)}, must have i32 or i64 in one dimension"
        )
    return TokensChunk(tokens=tokens)
