"""Where the forkserver's socket lies: a folder that does not outlive its process for longer than to the next start.

multiprocessing makes one of its own and removes it at its end; a process that is killed leaves it. This one is locked
while its process lives: a start removes those of its user that nobody locks any more. A socket without a file is no way
out, as any user of the machine could have the forkserver run what they like.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import multiprocessing.process
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["PREFIX", "keep_sockets_in_own_folder"]

PREFIX = "cbfs-"
"""Of the folders' names, where temporary files are; as short as multiprocessing's, as a socket's path has 107 bytes."""

_held: list[int] = []  # the open folder, whose lock ends with this process


def keep_sockets_in_own_folder() -> None:
    """Have multiprocessing keep its sockets in a folder of ours; remove what killed processes left. Once a process."""
    if _held:
        return
    parent = Path(tempfile.gettempdir())
    for path in parent.glob(f"{PREFIX}*"):
        _remove_unless_held(path)
    folder, descriptor = _made(parent)
    _held.append(descriptor)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # What its own get_temp_dir looks at first; there is no public way to tell it.
    vars(multiprocessing.process.current_process())["_config"]["tempdir"] = str(folder)


def _made(parent: Path) -> tuple[Path, int]:
    """A new folder, and what holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        descriptor = _locked(folder)
        if descriptor is not None:
            return folder, descriptor
        # Whoever starts beside us found it before its lock was held, and removes it.


def _remove_unless_held(path: Path) -> None:
    descriptor = _locked(path)
    if descriptor is None:
        return
    # Sockets alone: with anything else in it, it is somebody's who likes the name, and stays.
    with contextlib.suppress(OSError):
        entries = list(path.iterdir())
        if all(entry.is_socket() for entry in entries):
            for entry in entries:
                entry.unlink()
            path.rmdir()
    os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Take the lock of a folder of ours that is there; None where it is not, or somebody has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed meanwhile, another user's, or no folder
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
    except OSError:  # held, or removed before the lock was ours
        pass
    os.close(descriptor)
    return None
