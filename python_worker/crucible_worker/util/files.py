"""Files and folders: private ones, those below folders that the operator has named, and whether a file has changed.

Private ones, which only the worker's user may read from the moment they exist, contain output of models, or copies of
what others may not read. What exists and is open to a group alone stays so: its operator decided that.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = [
    "FILE_MODE",
    "FileState",
    "LeadsOut",
    "find_below",
    "is_at",
    "make_private_folder",
    "narrow",
    "open_private",
    "state_of",
]

# Files and folders that callers name by a path, below folders that the operator has named.
#
# A path is user input: it may contain `..`, be absolute, or meet symbolic links. None of them leads out of the folders.


class LeadsOut(Exception):
    """A path leads out of the folders below which it has to lie."""


def find_below(roots: Sequence[Path], path: str, is_it: Callable[[Path], bool]) -> Path | None:
    """The real path of a file or folder below the first root that has it; None if no root has it.

    Args:
        roots: folders.
        path: relative to any of them; without a zero byte.
        is_it: whether a real path has the wanted type: `Path.is_file`, `Path.is_dir`.

    Raises:
        LeadsOut: it leads out of a root, and no other root has it. Nothing outside is examined: the answer must not
            reveal what exists there.
    """
    leads_out = False
    for root in roots:
        try:
            real_root = root.resolve()
            found = (real_root / path).resolve()
            if not found.is_relative_to(real_root):
                leads_out = True
            elif is_it(found):
                return found
        except (OSError, RuntimeError):  # a name that is too long, or a loop of links: this root does not have it
            continue
    if leads_out:
        raise LeadsOut
    return None


# Whether a file is still the one that was read.

FileState = tuple[int, int, int, int]
"""Device, inode, size in bytes, and time of the last change of the content in nanoseconds."""


def state_of(path: Path) -> FileState | None:
    """The present state; None if it cannot be examined. Links are followed: where they lead is what counts."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is the one at a path: it was neither moved, nor removed, nor replaced."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False


FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o007


def open_private(path: Path, flags: int) -> int:
    """Open a file, which is made if it is missing; one of a wider mode is narrowed before anything is written.

    Args:
        path: the file.
        flags: of `os.open`, in addition to O_CREAT and O_CLOEXEC.

    Returns:
        A descriptor.

    Raises:
        OSError: it cannot be opened, or is the file of another user and has a wider mode.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        mode = stat.S_IMODE(os.fstat(file).st_mode)
        if mode & _OTHERS:
            os.fchmod(file, mode & FILE_MODE)
    except OSError as error:
        os.close(file)
        raise OSError(error.errno, error.strerror, str(path)) from None
    return file


def make_private_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; if it exists, others lose their access to it.

    Raises:
        OSError: it cannot be made, or is the folder of another user and has a wider mode.
    """
    for folder in reversed([path, *path.parents]):
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except OSError:  # it exists, which an unwritable folder above it does not let `mkdir` say
            if not folder.is_dir():
                raise
    narrow(path)


def narrow(path: Path) -> int | None:
    """Make what everybody may use private; returns the mode that it had, or None if it was none of these.

    Raises:
        OSError: it does not exist, or is that of another user and has a wider mode.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return None
    path.chmod(mode & FOLDER_MODE)
    return mode
