"""Which directories may be loaded, as models or adapters: below a model root, safetensors only, and what those hold.

A model reference is user input: it must not lead out of the roots, neither through `..`, nor through symbolic links,
nor through the index of a sharded checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.util.files import LeadsOut, find_below

__all__ = [
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "INDEX",
    "MAX_HEADER_BYTES",
    "PICKLED_SUFFIXES",
    "RELEVANT_SUFFIXES",
    "Header",
    "Tensor",
    "adapter_files",
    "check_adapter",
    "check_files",
    "check_tokenizer_files",
    "has_tokenizer",
    "model_files",
    "read_header",
    "resolve",
    "weight_map",
]

# Reads where the tensors of a safetensors file are, and what shapes they have.
#
# The library maps whole files into memory. This reads the header alone: 8 bytes with its length, then JSON. Source:
# https://huggingface.co/docs/safetensors/index#format

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
            raise ValueError(f"{clipped(name)} does not have the bytes of its shape")
        found[name] = Tensor(shape, start + begin, start + end)
    return found


def _fits(elements: int, bits: int) -> bool:
    """Whether so many bits can have so many elements, of the types of the format: 4 bits (FP4) to 128 (C128)."""
    return 4 * elements <= bits <= 128 * elements


ADAPTER_CONFIG = "adapter_config.json"
"""The files of an adapter."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""Its weights."""

RELEVANT_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})
"""Endings of a model's files: configuration, tokenizers (`vocab.txt`, `tokenizer.model`), chat templates, weights."""
PICKLED_SUFFIXES = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pth"})
"""Endings of weights that can run code."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")
"""A directory with one of these has a tokenizer."""
INDEX = "model.safetensors.index.json"
"""Names the files of a sharded checkpoint."""
WEIGHTS = "model.safetensors"
"""The weights of a checkpoint that is not sharded."""
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
"""Names of shards."""
_MAX_INDEX_BYTES = 64 * 1024 * 1024
"""Most bytes of the index: about 600,000 tensors."""
_MAX_NAMED = 3
"""Most files that an error names."""


def resolve(roots: Sequence[Path], path: str, field: str = "model.path") -> Path:
    """Return the real path of the directory of a model or an adapter, below one of the roots.

    Args:
        roots: directories; the first that has the path wins.
        path: relative to a root.
        field: of the path in the request.

    Raises:
        FailedPrecondition: there is no root.
        InvalidField: the path is empty or invalid.
        PermissionDenied: the path leads out of the roots.
        NotFound: no root has such a directory.
    """
    if not roots:
        raise FailedPrecondition(
            "the worker has no model root; start it with --model-root", reason=Reason.NO_MODEL_ROOT
        )
    if not path or "\0" in path:
        raise InvalidField(field, f"is {path!r}, not the path of a directory")
    searched = {"model_roots": ", ".join(map(str, roots))}
    try:
        found = find_below(roots, path, Path.is_dir)
    except LeadsOut:
        message = f"the model path {path!r} is outside of the model roots: name a folder above it by --model-root"
        raise PermissionDenied(message, reason=Reason.PATH_OUT_OF_ROOT, metadata=searched) from None
    if found is None:
        raise NotFound(
            f"there is no directory {path!r} below a model root", reason=Reason.MODEL_NOT_FOUND, metadata=searched
        )
    return found


def model_files(directory: Path) -> tuple[Path, ...]:
    """The files that determine a checkpoint, sorted by name; those in its folder, and shards below it.

    Raises:
        NotFound: the directory no longer exists.
        FailedPrecondition: the index of its shards is malformed.
    """
    return tuple(sorted({*_relevant_files(directory), *_shards(directory)}))


def _relevant_files(directory: Path) -> list[Path]:
    try:
        return sorted(f for f in directory.iterdir() if f.suffix in RELEVANT_SUFFIXES and f.is_file())
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"the model directory {directory.name!r} is gone", reason=Reason.MODEL_NOT_FOUND) from None


def check_files(directory: Path, roots: Sequence[Path]) -> None:
    """Refuse a checkpoint that cannot be loaded safely.

    Raises:
        FailedPrecondition: no config.json, no safetensors, an adapter, which is not a model by itself, or files of
            several checkpoints.
        PermissionDenied: a file, or a shard that the index names, lies outside of the roots.
    """
    files, shards = _relevant_files(directory), _shards(directory)
    names = {file.name for file in files}
    if not any(file.suffix == ".safetensors" for file in (*files, *shards)):
        if any(file.suffix in PICKLED_SUFFIXES for file in directory.iterdir()):
            raise FailedPrecondition(
                f"{directory.name!r} holds pickled weights, which can run code; save it as safetensors",
                reason=Reason.PICKLED_WEIGHTS_REFUSED,
            )
        raise FailedPrecondition(_without_weights(directory), reason=Reason.NO_SAFETENSORS)
    if ADAPTER_CONFIG in names:
        raise FailedPrecondition(
            f"{directory.name!r} is an adapter: name its model, and {directory.name!r} as the adapter",
            reason=Reason.ADAPTER_REFUSED,
        )
    if "config.json" not in names:
        raise FailedPrecondition(f"{directory.name!r} holds no config.json", reason=Reason.NO_MODEL_CONFIG)
    _refuse_outside(directory, (*files, *shards), roots)
    _refuse_mixed(directory, names, shards)


def has_tokenizer(directory: Path) -> bool:
    """Whether a directory has the files of a tokenizer."""
    return any((directory / name).is_file() for name in _TOKENIZERS)


def check_tokenizer_files(directory: Path, roots: Sequence[Path]) -> tuple[Path, ...]:
    """Refuse a directory without a tokenizer, or with files that lead out of the roots; weights are not looked at.

    Returns:
        The files that determine the tokenizer.

    Raises:
        NotFound: the directory no longer exists.
        FailedPrecondition: there is no tokenizer (NO_TOKENIZER).
        PermissionDenied: a file lies outside of the roots.
    """
    files = tuple(file for file in _relevant_files(directory) if file.suffix != ".safetensors")
    if not has_tokenizer(directory):
        raise FailedPrecondition(
            f"{directory.name!r} has no tokenizer: save it there with save_pretrained()", reason=Reason.NO_TOKENIZER
        )
    _refuse_outside(directory, files, roots)
    return files


def _without_weights(directory: Path) -> str:
    """What is missing, and where it might be: training runs write checkpoints one level below."""
    text = f"{directory.name!r} has no *.safetensors"
    below = sorted(file.parent.name for file in directory.glob("*/*.safetensors"))
    if below:
        return f"{text}; its folder {below[-1]!r} has some"
    return f"{text}: save the model there with save_pretrained()"


def adapter_files(directory: Path) -> tuple[Path, ...]:
    """The files that determine an adapter; other files of a training run next to them do not count."""
    return directory / ADAPTER_CONFIG, directory / ADAPTER_WEIGHTS


def check_adapter(directory: Path, roots: Sequence[Path]) -> None:
    """Refuse an adapter that cannot be loaded safely.

    Raises:
        FailedPrecondition: no adapter_config.json, or no adapter_model.safetensors.
        PermissionDenied: one of them lies outside of the roots.
    """
    config, weights = adapter_files(directory)
    if not config.is_file():
        raise FailedPrecondition(f"{directory.name!r} holds no {ADAPTER_CONFIG}", reason=Reason.NO_ADAPTER_CONFIG)
    if not weights.is_file():
        if any(file.suffix in PICKLED_SUFFIXES for file in directory.iterdir()):
            raise FailedPrecondition(
                f"the adapter {directory.name!r} holds pickled weights, which can run code; save it as safetensors",
                reason=Reason.PICKLED_WEIGHTS_REFUSED,
            )
        raise FailedPrecondition(
            f"the adapter {directory.name!r} holds no {ADAPTER_WEIGHTS}", reason=Reason.NO_SAFETENSORS
        )
    _refuse_outside(directory, (config, weights), roots)


def _refuse_outside(directory: Path, files: Sequence[Path], roots: Sequence[Path]) -> None:
    real_roots = [root.resolve() for root in roots]
    for file in files:
        if not any(file.resolve().is_relative_to(root) for root in real_roots):
            raise PermissionDenied(
                f"{file.name!r} of the model {directory.name!r} lies outside of the model roots",
                reason=Reason.PATH_OUT_OF_ROOT,
            )


def _refuse_mixed(directory: Path, names: set[str], shards: Sequence[Path]) -> None:
    """Refuse files of several checkpoints in one directory: programs differ in which of them they read.

    Args:
        directory: of the checkpoint.
        names: of the files in it.
        shards: that the index names; none without an index.
    """
    named = {shard.relative_to(directory).as_posix() for shard in shards}
    if missing := sorted(name for name in named if not (directory / name).is_file()):
        or_remove = f", or remove {INDEX} if {WEIGHTS!r} is the checkpoint" if WEIGHTS in names else ""
        raise _refused(directory, f"{INDEX} names {_few(missing)}, which is not there: copy it{or_remove}")
    numbered = {name for name in names if _SHARD.fullmatch(name)}
    if WEIGHTS in names and (others := sorted((numbered | named) - {WEIGHTS})):
        raise _refused(directory, f"{WEIGHTS!r} is next to {_few(others)}: remove the older weights")
    if not named and numbered:
        raise _refused(directory, f"{_few(sorted(numbered))} is there without {INDEX}: copy that, too")
    if stale := sorted(numbered - named):
        raise _refused(directory, f"{INDEX} does not name {_few(stale)}: remove what is left of another checkpoint")


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"in {directory.name!r} {why}", reason=Reason.MODEL_REFUSED)


def _few(names: Sequence[str]) -> str:
    named = ", ".join(repr(name) for name in names[:_MAX_NAMED])
    return named if len(names) <= _MAX_NAMED else f"{named} and {len(names) - _MAX_NAMED:,} more"


def _shards(directory: Path) -> list[Path]:
    return [directory / name for name in sorted(set(weight_map(directory).values()))]


def weight_map(directory: Path) -> Mapping[str, str]:
    """The file of each tensor, as the index of a sharded checkpoint says; empty without an index.

    Raises:
        FailedPrecondition: the index is malformed, or too large (MODEL_REFUSED).
    """
    index = directory / INDEX
    if not index.is_file():
        return {}
    with index.open("rb") as stream:
        text = stream.read(_MAX_INDEX_BYTES + 1)
    try:
        if len(text) > _MAX_INDEX_BYTES:
            raise ValueError(f"it has more than {_MAX_INDEX_BYTES:,} bytes")
        places: dict[str, str] = json.loads(text)["weight_map"]
        if any("\0" in name for name in places.values()):
            raise ValueError("a name holds a zero byte")
        return places
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FailedPrecondition(
            f"{INDEX} of {directory.name!r} is malformed: {error}", reason=Reason.MODEL_REFUSED
        ) from error
