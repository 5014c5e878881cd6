"""Whether a file is still the one that was read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["FileState", "is_at", "state_of"]

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
