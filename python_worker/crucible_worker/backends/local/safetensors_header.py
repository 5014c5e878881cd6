"""Reads where the tensors of a safetensors file are, and what shapes they have.

The library maps whole files into memory. This reads the header alone: 8 bytes with its length, then JSON.
Source: https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
from collections.abc import Mapping
from typing import BinaryIO

__all__ = ["MAX_HEADER_BYTES", "Header", "Tensor", "read_header"]

MAX_HEADER_BYTES = 100_000_000
"""Most bytes of a header, as in the library."""

_LENGTH_BYTES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file."""

    shape: tuple[int, ...]
    """Its shape."""
    begin: int
    """Offset of its first byte in the file."""
    end: int
    """Offset behind its last byte."""


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What is before the tensors of a file."""

    text: bytes
    """The JSON: names, element types, shapes and places of all tensors."""
    tensors: Mapping[str, Tensor]
    """By name."""


def read_header(stream: BinaryIO) -> Header:
    """Read the header of a file that was opened in binary mode. Sizes are checked before anything is parsed.

    Raises:
        ValueError: the file is damaged, or does not have the bytes of a tensor.
    """
    room = os.fstat(stream.fileno()).st_size - _LENGTH_BYTES
    size = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"its header has {size:,} bytes, {MAX_HEADER_BYTES:,} are accepted")
    if size > room:
        raise ValueError(f"its header has {size:,} bytes, the file only {max(0, room):,} more")
    text = stream.read(size)
    try:
        return Header(text, _tensors(json.loads(text), _LENGTH_BYTES + size, room - size))
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its header is malformed: {error}") from error


def _tensors(header: Mapping[str, Mapping[str, list[int]]], start: int, room: int) -> Mapping[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        shape = tuple(map(operator.index, tensor["shape"]))
        begin, end = map(operator.index, tensor["data_offsets"])
        bits = 8 * (end - begin)
        if min(shape, default=0) < 0 or not 0 <= begin <= end <= room or not _fits(math.prod(shape), bits):
            raise ValueError(f"{name[:60]!r} does not have the bytes of its shape")
        found[name] = Tensor(shape, start + begin, start + end)
    return found


def _fits(elements: int, bits: int) -> bool:
    """Whether so many bits can have so many elements, of the types of the format: 4 bits (FP4) to 128 (C128)."""
    return 4 * elements <= bits <= 128 * elements
