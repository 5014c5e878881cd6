"""The directory that is followed, and the folder in which its checkpoints are held: both below a model root."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from crucible_bridge.errors import FailedPrecondition, InvalidField, PermissionDenied
from crucible_bridge.reasons import Reason

__all__ = ["RELEASED_SUFFIX", "directory_below", "folder_name", "hold_name", "is_below"]

RELEASED_SUFFIX = ".released"
"""Ends the name of the file that says that a checkpoint was released; in a checkpoint it is the whole name."""
MAX_NAME_BYTES = 200
"""Longest name of a run's folder; longer ones are shortened to a digest."""

DIGEST_DIGITS = 12
"""Hexadecimal digits of the digest that tells state directories apart."""


def directory_below(roots: Sequence[Path], text: str, field: str) -> Path:
    """The absolute path of a directory below the first model root that has it; it need not exist.

    Without one that exists, it is below the first root.

    Args:
        roots: the model roots.
        text: relative to one of them, or absolute.
        field: of the text in the request.

    Raises:
        FailedPrecondition: there is no model root.
        InvalidField: it is no path.
        PermissionDenied: it leads out of the roots.
    """
    if not roots:
        message = "the worker has no model root; start it with --model-root"
        raise FailedPrecondition(message, reason=Reason.NO_MODEL_ROOT, field=field)
    if not text or "\0" in text:
        raise InvalidField(field, f"is {text!r}, not the path of a directory")
    candidates: list[Path] = []
    for root in roots:
        try:
            real = root.resolve()
            found = (real / text).resolve()
        except (OSError, RuntimeError):  # a name that is too long, or a loop of links
            continue
        if found.is_relative_to(real):
            candidates.append(found)
    try:
        existing = [path for path in candidates if path.is_dir()]
    except OSError as error:
        problem = f"is {text[:200]!r}, which cannot be a directory: {error.strerror}"
        raise InvalidField(field, problem) from error
    if not candidates:
        message = f"is {text!r}, which is outside of the model roots: name a folder above it by --model-root"
        raise PermissionDenied(message, reason=Reason.PATH_OUT_OF_ROOT, field=field)
    return (existing or candidates)[0]


def is_below(roots: Sequence[Path], path: str) -> bool:
    """Whether an absolute path is below one of the roots."""
    try:
        real = Path(path).resolve()
        return any(real.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError):
        return False


def hold_name(run_id: str, state_dir: Path) -> str:
    """The name of the folder in which a run's checkpoints are held for the worker of a state directory.

    Workers of two state directories may follow one directory by one run id: none releases what the other holds.
    """
    digest = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()
    return f"{folder_name(run_id)}@{digest[:DIGEST_DIGITS]}"  # a quoted id has no @


def folder_name(run_id: str) -> str:
    """The name of a run's folder: the run's id where that can be a name."""
    name = quote(run_id, safe="")
    if len(name) > MAX_NAME_BYTES or name.startswith("."):
        return hashlib.sha256(run_id.encode()).hexdigest()
    return name
