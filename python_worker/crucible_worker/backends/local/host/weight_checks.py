"""Refuses a model if its files do not have exactly the weights that its configuration describes.

transformers only logs such weights: it drops those that the model lacks, and makes random ones in place of those that
the files lack. The number of such a model is that of no checkpoint.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crucible_bridge.errors import FailedPrecondition, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.paths import INDEX, model_files, read_header, weight_map

__all__ = [
    "CONFIG",
    "MAX_BUFFER_BYTES",
    "MAX_CONFIG_BYTES",
    "MAX_UNSAVED_WEIGHTS",
    "check_sizes",
    "read_config",
    "read_shapes",
    "refuse_other_weights",
]

# Checks that the configuration of a checkpoint describes its weights, before a model is built from it.
#
# A configuration is a few bytes, and may describe a model of any size. It is compared with the names and shapes in the
# safetensors files. Building the described model takes no memory for weights (device "meta"), but it may take time:
# this runs in a process with bounded time and memory.

CONFIG = "config.json"
"""The file with a model's configuration."""
MAX_CONFIG_BYTES = 16 * 1024 * 1024
"""Most bytes of that file."""
MAX_UNSAVED_WEIGHTS = 64 * 1024 * 1024
"""Most weights of a model that are not in its files: tables that are computed, or missing weights."""
MAX_BUFFER_BYTES = 1024 * 1024 * 1024
"""Most bytes of tables that are computed from the configuration, mainly of positions."""

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers")
_WIDTHS = ("vocab_size", "hidden_size", "n_embd", "d_model")
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
    shapes = read_shapes(directory)
    packed = _PACKED if "quantization_config" in config else 1
    _check_fields(directory, config, shapes, packed)
    held = packed * sum(map(math.prod, shapes.values()))
    described = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described, trust_remote_code=False)
    weights = sum(parameter.numel() for parameter in model.parameters())
    if weights > held + MAX_UNSAVED_WEIGHTS:
        layers = f"; they have {_layers(shapes)} layers" if _layers(shapes) else ""
        raise _refused_configuration(
            directory, f"describes a model of {weights:,} weights, the safetensors have {held:,}{layers}"
        )
    tables = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if tables > MAX_BUFFER_BYTES:
        raise _refused_configuration(
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
        raise _refused_configuration(directory, f"has more than {MAX_CONFIG_BYTES:,} bytes")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused_configuration(directory, f"is malformed JSON: {error}") from error
    if not isinstance(config, dict):
        raise _refused_configuration(directory, "is no JSON object")
    return config


def read_shapes(directory: Path) -> _Shapes:
    """Shape of every tensor, by name.

    Only the headers are read. The library maps whole files, and the limit of this process counts what is mapped.

    Raises:
        ValueError: a file is damaged, or does not have the bytes of a tensor.
        FailedPrecondition: the index of the shards is not that of these shards (MODEL_REFUSED).
    """
    found: dict[Path, _Shapes] = {}
    for file in model_files(directory):
        if file.suffix != ".safetensors":
            continue
        try:
            with file.open("rb") as stream:
                tensors = read_header(stream).tensors
        except ValueError as error:
            raise ValueError(f"{file.name!r} is damaged: {error}") from error
        found[file] = {name: tensor.shape for name, tensor in tensors.items()}
    _check_places(directory, found)
    return {name: shape for shapes in found.values() for name, shape in shapes.items()}


def _check_places(directory: Path, found: Mapping[Path, _Shapes]) -> None:
    """Refuse an index that belongs to other shards: those that were saved at another time have other weights."""
    places = weight_map(directory)
    for name, file in places.items():
        if name not in found[directory / file]:
            raise FailedPrecondition(
                f"{INDEX} of {directory.name!r} says that {clipped(name)} is in {file!r}, which does not have it: "
                "remove what is left of another checkpoint",
                reason=Reason.MODEL_REFUSED,
            )
    seen: dict[str, str] = {}
    for file in sorted(set(places.values())):
        for name in found[directory / file]:
            if name in seen:
                raise FailedPrecondition(
                    f"{directory.name!r} has {clipped(name)} twice, in {seen[name]!r} and in {file!r}: "
                    "remove what is left of another checkpoint",
                    reason=Reason.MODEL_REFUSED,
                )
            seen[name] = file


def _check_fields(
    directory: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], packed: int
) -> None:
    widest = packed * max((max(shape, default=1) for shape in shapes.values()), default=0)
    for path, name, value in _sizes(config, ""):
        if name in _LAYERS and value > len(shapes):
            found = f"{len(shapes):,} tensors" + (f" of {_layers(shapes)} layers" if _layers(shapes) else "")
            raise _refused_configuration(directory, f"says {path} is {value:,}; the safetensors have {found}")
        if name in _WIDTHS and value > widest:
            raise _refused_configuration(
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


def _refused_configuration(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"{CONFIG} of {directory.name!r} {why}", reason=Reason.MODEL_REFUSED)


_MAX_NAMED = 3
"""Most weights that an error names."""
_MAX_NAME_CHARS = 120
"""Most characters of one of them, its shapes included."""
_MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
"""Ends of the names of attention masks, which old releases of transformers saved: a table, and one number."""
_MASK_DIMENSIONS = 4
"""Of the table: (1, 1, context, context). A bias that was trained has one."""


def refuse_other_weights(directory: Path, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse what transformers would load without some of the weights.

    Args:
        directory: of the model.
        model: as transformers loaded it.
        report: its `loading_info`, without what the model's class declares as ignorable.

    Raises:
        FailedPrecondition: names weights that are missing, that have another shape, or that are not used
            (MODEL_REFUSED).
    """
    if missing := sorted(report["missing_keys"]):
        raise _refused_weights(directory, f"lacks {_few(missing)} of its model: save all of it with save_pretrained()")
    if mismatched := sorted(report["mismatched_keys"], key=lambda each: each[0]):
        shapes = [
            f"{name} has {_by(there)} in the files, {_by(described)} in the model"
            for name, there, described in mismatched
        ]
        raise _refused_weights(
            directory, f"has {_few(shapes, 'of other shapes')}: config.json is not that of these weights"
        )
    if unused := _unused(directory, model, report["unexpected_keys"]):
        raise _refused_weights(
            directory,
            f"has {_few(unused)} that its configuration does not use: write the config.json that describes them "
            "(number of layers, biases ...), or remove them from the files",
        )
    if untied := _untied(model):
        raise _refused_weights(
            directory,
            f"has {_few(untied)} that config.json ties to other weights, with other values: set tie_word_embeddings to "
            "false there, or remove them from the files",
        )


def _unused(directory: Path, model: Any, names: Collection[str]) -> Sequence[str]:
    """Those that are no tables which the model computes."""
    trained = set(names) - {name for name, _ in model.named_buffers()}
    if any(name.endswith(_MASKS) for name in trained):
        shapes = read_shapes(directory)
        trained = {name for name in trained if not (name.endswith(_MASKS) and _is_mask(shapes.get(name)))}
    return sorted(trained)


def _is_mask(shape: Sequence[int] | None) -> bool:
    return shape is not None and (len(shape) == _MASK_DIMENSIONS or math.prod(shape) == 1)


def _untied(model: Any) -> Sequence[str]:
    """Weights that the configuration ties to others, and that the files have with other values."""
    tied: Mapping[str, str] = model.get_expanded_tied_weights_keys(all_submodels=True)
    return sorted(
        target for target, source in tied.items() if model.get_parameter(target) is not model.get_parameter(source)
    )


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "no dimension"


def _few(names: Sequence[str], kind: str = "") -> str:
    """The first of some weights, after their number."""
    named = ", ".join(name[:_MAX_NAME_CHARS] for name in names[:_MAX_NAMED]) + (
        ", ..." if len(names) > _MAX_NAMED else ""
    )
    return " ".join(filter(None, (f"{len(names):,}", "weight" if len(names) == 1 else "weights", kind, f"({named})")))


def _refused_weights(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"{directory.name!r} {why}", reason=Reason.MODEL_REFUSED)
