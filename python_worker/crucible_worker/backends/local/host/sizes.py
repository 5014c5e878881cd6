"""Checks that the configuration of a checkpoint describes its weights, before a model is built from it.

A configuration is a few bytes, and may describe a model of any size. It is compared with the names and shapes in the
safetensors files. Building the described model takes no memory for weights (device "meta"), but it may take time: this
runs in a process with bounded time and memory.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason

__all__ = ["CONFIG", "MAX_BUFFER_BYTES", "MAX_CONFIG_BYTES", "MAX_HEADER_BYTES", "MAX_UNSAVED_WEIGHTS", "check_sizes"]

CONFIG = "config.json"
"""The file with a model's configuration."""
MAX_CONFIG_BYTES = 16 * 1024 * 1024
"""Most bytes of that file."""
MAX_HEADER_BYTES = 100_000_000
"""Most bytes of the header of a safetensors file, as in the library."""
MAX_UNSAVED_WEIGHTS = 64 * 1024 * 1024
"""Most weights of a model that are not in its files: tables that are computed, or missing weights."""
MAX_BUFFER_BYTES = 1024 * 1024 * 1024
"""Most bytes of tables that are computed from the configuration, mainly of positions."""

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers")
_WIDTHS = ("vocab_size", "hidden_size", "n_embd", "d_model")
_LENGTH_BYTES = 8
"""Bytes of the number before a safetensors header: its length."""
_PACKED = 16
"""Most weights in one element of a quantized checkpoint."""
_Shapes = Mapping[str, tuple[int, ...]]
_NUMBER = re.compile(r"\.(\d+)\.")


def check_sizes(directory: Path) -> None:
    """Refuse a configuration that describes a larger model than the safetensors contain.

    Raises:
        FailedPrecondition: names the field of config.json (MODEL_REFUSED).
    """
    config = read_config(directory)
    shapes = _shapes(directory)
    packed = _PACKED if "quantization_config" in config else 1
    _check_fields(directory, config, shapes, packed)
    held = packed * sum(map(math.prod, shapes.values()))
    described = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described, trust_remote_code=False)
    weights = sum(parameter.numel() for parameter in model.parameters())
    if weights > held + MAX_UNSAVED_WEIGHTS:
        layers = f"; they have {_layers(shapes)} layers" if _layers(shapes) else ""
        raise _refused(directory, f"describes a model of {weights:,} weights, the safetensors have {held:,}{layers}")
    tables = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if tables > MAX_BUFFER_BYTES:
        raise _refused(
            directory,
            f"needs tables of {tables:,} bytes, {MAX_BUFFER_BYTES:,} are accepted: "
            "see max_position_embeddings, or its name in this configuration",
        )


def read_config(directory: Path) -> dict[str, Any]:
    """The configuration, unchanged.

    Raises:
        FailedPrecondition: it is larger than `MAX_CONFIG_BYTES`, or no JSON object (MODEL_REFUSED).
    """
    file = directory / CONFIG
    with file.open("rb") as stream:
        text = stream.read(MAX_CONFIG_BYTES + 1)
    if len(text) > MAX_CONFIG_BYTES:
        raise _refused(directory, f"has more than {MAX_CONFIG_BYTES:,} bytes")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(directory, f"is malformed JSON: {error}") from error
    if not isinstance(config, dict):
        raise _refused(directory, "is no JSON object")
    return config


def _shapes(directory: Path) -> _Shapes:
    """Shape of every tensor, by name.

    Only the headers are read. The library maps whole files, and the limit of this process counts what is mapped.

    Raises:
        ValueError: a file is damaged, or does not have the bytes of a tensor.
    """
    found: dict[str, tuple[int, ...]] = {}
    for file in sorted(directory.glob("*.safetensors")):
        try:
            found |= _shapes_in(file)
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"{file.name!r} is damaged: {error}") from error
    return found


def _shapes_in(file: Path) -> _Shapes:
    found: dict[str, tuple[int, ...]] = {}
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"its header has {size:,} bytes, {MAX_HEADER_BYTES:,} are accepted")
        header = json.loads(stream.read(size))
        room = os.fstat(stream.fileno()).st_size - _LENGTH_BYTES - size
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        shape = tuple(map(operator.index, tensor["shape"]))
        begin, end = map(operator.index, tensor["data_offsets"])
        bits = 8 * (end - begin)
        if min(shape, default=0) < 0 or not 0 <= begin <= end <= room or not _fits(math.prod(shape), bits):
            raise ValueError(f"{name[:60]!r} does not have the bytes of its shape")
        found[name] = shape
    return found


def _fits(elements: int, bits: int) -> bool:
    """Whether so many bits can have so many elements, of the types of the format: 4 bits (FP4) to 128 (C128)."""
    return 4 * elements <= bits <= 128 * elements


def _check_fields(
    directory: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], packed: int
) -> None:
    widest = packed * max((max(shape, default=1) for shape in shapes.values()), default=0)
    for path, name, value in _sizes(config, ""):
        if name in _LAYERS and value > len(shapes):
            found = f"{len(shapes):,} tensors" + (f" of {_layers(shapes)} layers" if _layers(shapes) else "")
            raise _refused(directory, f"says {path} is {value:,}; the safetensors have {found}")
        if name in _WIDTHS and value > widest:
            raise _refused(
                directory, f"says {path} is {value:,}; no tensor of the safetensors has a side above {widest:,}"
            )


def _sizes(config: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, int]]:
    """Path, name and value of the numbers that are sizes; includes those of a nested text model."""
    for name, value in config.items():
        if name in _LAYERS + _WIDTHS and isinstance(value, int):
            yield path + name, name, value
        elif name == "text_config" and isinstance(value, dict):
            yield from _sizes(value, f"{path}{name}.")


def _layers(shapes: _Shapes) -> int:
    """Number of layers by the names of tensors; 0 if these have no numbers."""
    return max((int(number) + 1 for name in shapes for number in _NUMBER.findall(name)), default=0)


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"{CONFIG} of {directory.name!r} {why}", reason=Reason.MODEL_REFUSED)
