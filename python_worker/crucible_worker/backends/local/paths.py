"""Which directories may be loaded, as models or as adapters on them: below a model root, safetensors only.

A model reference is user input: it must not lead out of the roots, neither through `..`, nor through symbolic links,
nor through the index of a sharded checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied
from crucible_bridge.reasons import Reason
from crucible_worker.below_roots import LeadsOut, find_below

__all__ = [
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "INDEX",
    "PICKLED_SUFFIXES",
    "RELEVANT_SUFFIXES",
    "adapter_files",
    "check_adapter",
    "check_files",
    "check_tokenizer_files",
    "has_all_shards",
    "has_tokenizer",
    "model_files",
    "resolve",
]

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
    try:
        found = find_below(roots, path, Path.is_dir)
    except LeadsOut:
        message = f"the model path {path!r} is outside of the model roots: name a folder above it by --model-root"
        raise PermissionDenied(message, reason=Reason.PATH_OUT_OF_ROOT) from None
    if found is None:
        raise NotFound(f"there is no directory {path!r} below a model root", reason=Reason.MODEL_NOT_FOUND)
    return found


def model_files(directory: Path) -> tuple[Path, ...]:
    """The files that determine a checkpoint, sorted by name.

    Raises:
        NotFound: the directory no longer exists.
    """
    try:
        return tuple(sorted(f for f in directory.iterdir() if f.suffix in RELEVANT_SUFFIXES and f.is_file()))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"the model directory {directory.name!r} is gone", reason=Reason.MODEL_NOT_FOUND) from None


def check_files(directory: Path, roots: Sequence[Path]) -> None:
    """Refuse a checkpoint that cannot be loaded safely.

    Raises:
        FailedPrecondition: no config.json, no safetensors, or an adapter, which is not a model by itself.
        PermissionDenied: a file, or a shard that the index names, lies outside of the roots.
    """
    files = model_files(directory)
    names = {file.name for file in files}
    if not any(file.suffix == ".safetensors" for file in files):
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
    _refuse_outside(directory, (*files, *_shards(directory)), roots)


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
    files = tuple(file for file in model_files(directory) if file.suffix != ".safetensors")
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


def has_all_shards(directory: Path) -> bool:
    """Whether all files in the index of a sharded checkpoint exist; true for other checkpoints.

    Raises:
        FailedPrecondition: the index is malformed.
    """
    return all(shard.is_file() for shard in _shards(directory))


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


def _shards(directory: Path) -> list[Path]:
    index = directory / INDEX
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        if any("\0" in name for name in names):
            raise ValueError("a name holds a zero byte")
        return [directory / name for name in names]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FailedPrecondition(
            f"{INDEX} of {directory.name!r} is malformed: {error}", reason=Reason.MODEL_REFUSED
        ) from error
