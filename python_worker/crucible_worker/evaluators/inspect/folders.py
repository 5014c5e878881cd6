"""Temporary folders of tasks, each held by a lock that the kernel drops when the worker dies.

Nothing removes the folder of a worker that was killed but a later one: before it makes its own it removes those that
nobody holds any more. The lock says so even where workers do not see each other's processes, as in containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["UNHELD_SECONDS", "hold", "remove_abandoned"]

UNHELD_SECONDS = 60.0
"""How young a folder may be that nobody holds: another worker may have made it, and not come to take its lock."""

_PREFIX = "crucible-inspect-"


@contextlib.contextmanager
def hold() -> Iterator[Path]:
    """A new folder, this worker's alone; what becomes of it at the end is for the caller to say."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A file system without locks has nothing removed from it, as nobody can take one there.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(held)


def remove_abandoned() -> None:
    """Remove the folders of workers of this user that have died; what cannot be removed stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # No link is followed: anybody may make one in a directory for temporary files.
        with contextlib.suppress(OSError):
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _is_old(os.fstat(found)):
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(found)


def _is_old(status: os.stat_result) -> bool:
    """Whether it is this user's own, and nobody is about to take its lock."""
    own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
    return own and time.time() - status.st_mtime > UNHELD_SECONDS
