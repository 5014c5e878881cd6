"""Files and folders that only the worker's user may read, from the moment they exist and whatever the umask is.

They contain output of models, or copies of what others may not read. What exists and is open to a group alone stays so:
its operator decided that.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["FILE_MODE", "make_private_folder", "narrow", "open_private"]

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
