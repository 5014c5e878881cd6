"""Temporary folders of tasks, each locked by a lock that the kernel releases when the worker dies.

Only a later worker removes the folder of a worker that was killed: before it creates its own folder, it removes those
that are no longer locked. The lock shows this even if workers do not see each other's processes, as in containers.
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
"""An unlocked folder younger than this is left alone: another worker may be about to lock it."""

_PREFIX = "crucible-inspect-"


@contextlib.contextmanager
def hold() -> Iterator[Path]:
    """A new folder of this worker only; the caller decides what happens to it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # On a file system without locks nothing is removed, as no worker can lock anything there.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(held)


def remove_abandoned() -> None:
    """Remove the folders of this user's workers that have died; a folder that cannot be removed stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # No link is followed: every user can create one in a directory for temporary files.
        with contextlib.suppress(OSError):
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _is_old(os.fstat(found)):
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(found)


def _is_old(status: os.stat_result) -> bool:
    """Whether it is this user's own, and no worker is about to lock it."""
    own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
    return own and time.time() - status.st_mtime > UNHELD_SECONDS
