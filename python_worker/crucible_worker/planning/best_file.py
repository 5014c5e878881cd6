"""The file BEST: which checkpoint of a folder is the best one, next to the checkpoints.

runs/arithmetic/step-320/model.safetensors
runs/arithmetic/step-600/model.safetensors
runs/arithmetic/BEST                         {"checkpoint": "step-600", "metric": "accuracy", "value": 0.9, ...}
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubModel, LocalModel, ModelRef, format_model
from crucible_worker.exports.files import whole_file
from crucible_worker.util.files import LeadsOut, find_below
from crucible_worker.util.model_refs import as_managed, original_model, original_path

__all__ = ["BEST_FILE", "CheckpointDeleted", "Followed", "check_has_folder", "with_folder", "write_best"]

BEST_FILE = "BEST"
"""Name of the file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Where the checkpoint of a followed run is, as opposed to where it was held while it was read."""

    directory: str
    """The followed directory."""
    source: str
    """The checkpoint's folder in it."""


class CheckpointDeleted(NotFound):
    """A checkpoint is gone, and the folder that held it is there."""


def check_has_folder(model: ModelRef) -> str:
    """The path of the folder that a checkpoint is: that of its adapter, or of the whole model.

    Raises:
        InvalidField: the model is no folder of this machine.
    """
    path = model.adapter_path if isinstance(model, LocalModel | HubModel) else None
    if path is None and isinstance(model, LocalModel):
        path = model.path
    if (managed := as_managed(model)) is not None:
        path = managed.adapter or managed.path or None
    if path is None:
        raise InvalidField(
            "model",
            f"is {format_model(model)!r}: the file {BEST_FILE} is written next to checkpoints on the worker's disk, "
            "local:PATH, managed:SERVER/PATH or ...?adapter=PATH",
        )
    return path


def write_best(
    roots: Sequence[Path],
    model: ModelRef,
    facts: Mapping[str, str | float | None],
    *,
    gone: bool = False,
    followed: Followed | None = None,
    copy_in: Callable[[Path], Path | None] = lambda holder: None,
    confirm: Callable[[], None] = lambda: None,
) -> Path:
    """Write the file into the folder that holds the checkpoint's folder; it appears whole, or not at all.

    Args:
        roots: folders below which models may be named; the file is written below one of them too.
        model: the checkpoint.
        facts: what the file says of it besides its name.
        gone: whether the checkpoint's folder may be gone: its trainer removes old ones.
        followed: where the checkpoint is, if a followed run has it; the model is where it was held then.
        copy_in: finds a copy of the checkpoint, given the folder that held it; the file names the copy if the
            checkpoint is gone.
        confirm: called just before the file gets its name; if it raises, the file stays as it was.

    Returns:
        The file's path.

    Raises:
        InvalidField: the model is no folder of this machine.
        FailedPrecondition: there is no root.
        CheckpointDeleted: the checkpoint is gone, and so is every copy.
        NotFound: no root has the checkpoint. If it was held while it was read, the trainer's own folder counts.
        PermissionDenied: the checkpoint, or the folder that holds it, is outside of every root.
        OSError: the file cannot be written, or something of its name is no file.
    """
    path = check_has_folder(model)
    if not roots:
        raise FailedPrecondition("this worker has no model root (--model-root)", reason=Reason.NO_MODEL_ROOT)
    if followed is None:
        holder, name = _parts(path)
        own = str(holder / name)
        if own != path and _is_there(roots, own):
            path = own
        model = original_model(model)
    else:
        holder, own = PurePath(followed.directory), followed.source
        name = os.path.relpath(own, holder)
        model = with_folder(model, own)
    if not gone:
        try:
            _found(roots, path, path)
        except NotFound:
            if holder == PurePath("."):  # any root has that one, so it does not show that this is the right root
                raise
            folder = _found(roots, str(holder), path)
            name, model = _copied(copy_in(folder), folder, model, name)
    file = _found(roots, str(holder), path) / BEST_FILE
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise FileExistsError(f"{file} is no file: remove it")  # a link may lead out of the roots, and a pipe waits
    text = json.dumps({"checkpoint": name, "model": format_model(model), **facts}, allow_nan=False)
    with whole_file(file) as out:
        out.write(f"{text}\n".encode())
        confirm()
    return file


def _copied(copy: Path | None, folder: Path, model: ModelRef, name: str) -> tuple[str, ModelRef]:
    """The name and the model of the copy of a checkpoint that is gone.

    Raises:
        CheckpointDeleted: there is no copy.
    """
    if copy is None:
        raise CheckpointDeleted(
            f"{name} was deleted since it was evaluated: {folder} is there without it. A trainer deletes old "
            "checkpoints (save_total_limit); `crucible-worker follow --keep-best N` keeps copies of the best ones",
            reason=Reason.MODEL_NOT_FOUND,
            field="model",
        )
    return os.path.relpath(copy, folder), with_folder(model, str(copy))


def _is_there(roots: Sequence[Path], path: str) -> bool:
    try:
        return find_below(roots, path, Path.is_dir) is not None
    except LeadsOut:
        return False


def with_folder(model: ModelRef, path: str) -> ModelRef:
    """The model with another folder of its checkpoint."""
    if (managed := as_managed(model)) is not None:
        part = "path" if managed.adapter is None else "adapter"
        return dataclasses.replace(managed, **{part: path}).to_model()
    if isinstance(model, LocalModel | HubModel) and model.adapter_path is not None:
        return dataclasses.replace(model, adapter_path=path)
    return dataclasses.replace(model, path=path) if isinstance(model, LocalModel) else model


def _parts(path: str) -> tuple[PurePath, str]:
    """The folder that holds a checkpoint, and the checkpoint's name in it.

    A checkpoint that is held while it is read, "sums/.crucible/RUN/step-600", belongs to "sums".
    """
    pure = PurePath(original_path(path))
    if pure.name in ("", ".."):
        raise PermissionDenied(
            f"is {path!r}: {BEST_FILE} is written above the checkpoint, so name the checkpoint's own folder",
            reason=Reason.PATH_OUT_OF_ROOT,
            field="model",
        )
    return pure.parent, pure.name


def _found(roots: Sequence[Path], path: str, shown: str) -> Path:
    """The real path of a folder below one of the roots."""
    try:
        found = find_below(roots, path, Path.is_dir)
    except LeadsOut:
        raise PermissionDenied(
            f"is {shown!r}, which leads out of the model roots", reason=Reason.PATH_OUT_OF_ROOT, field="model"
        ) from None
    if found is None:
        raise NotFound(f"is {shown!r}: no model root has this folder", reason=Reason.MODEL_NOT_FOUND, field="model")
    return found
