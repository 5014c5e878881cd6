"""Folders and files of loggers that write files."""

from __future__ import annotations

import itertools
from pathlib import Path

from crucible_worker.loggers.base import Experiment
from crucible_worker.util.files import make_private_folder

__all__ = ["folder_for", "make_folder", "replace_file"]

_MARK = ".run_id"
_MAX_NAME = 200  # bytes of a file's name are at most 255; characters above that may take more than one


def folder_for(directory: str, experiment: Experiment) -> Path:
    """The folder of an experiment, made if it is missing.

    Below a folder that the operator named it has the experiment's name. Another experiment of the same name has
    NAME-2, and so on: a tracker must not take the entries of one for those of the other.

    Args:
        directory: named by the operator; if empty, the experiment's own folder of the worker.
        experiment: what it is for.

    Raises:
        OSError: it cannot be made.
    """
    if not directory:
        folders = iter((experiment.directory,))
    else:
        base = Path(directory).expanduser() / _file_name(experiment.name)
        further = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
        folders = itertools.chain((base,), further)
    for folder in folders:
        make_folder(folder, private=not directory)
        mark = folder / _MARK
        try:
            owner = mark.read_text()
        except FileNotFoundError:
            replace_file(mark, experiment.run_id.encode())
            return folder
        if owner == experiment.run_id:
            return folder
    raise OSError(f"{experiment.directory} has the files of another experiment")


def make_folder(folder: Path, *, private: bool) -> None:
    """Make a folder with those above it: that of the operator by the umask, and that of the worker private.

    Raises:
        OSError: it cannot be made.
    """
    if private:
        make_private_folder(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: a kill leaves the old one or the new one.

    Raises:
        OSError: it cannot be written; the old one is left.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _file_name(name: str) -> str:
    """A name as one of a file: without separators, and neither hidden nor "..", in at most 200 bytes."""
    plain = "".join(char if char.isalnum() or char in "._- " else "_" for char in name)
    plain = plain.encode()[:_MAX_NAME].decode(errors="ignore").strip()
    return f"_{plain}" if not plain or plain.startswith(".") else plain
