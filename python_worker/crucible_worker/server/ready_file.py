"""The ready file: the worker's address. It exists only while the worker listens, and is never half written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["remove_ready_file", "write_ready_file"]


def write_ready_file(path: Path, address: str) -> None:
    """Write the address atomically: a reader finds the whole text or no file. It is readable as the umask says.

    Raises:
        OSError: the folder does not exist, or is not writable.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(made, "w", encoding="ascii", errors="surrogateescape") as file:
            file.write(address)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def remove_ready_file(path: Path, address: str) -> None:
    """Remove the file, unless another worker has written its own in its place."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="ascii", errors="surrogateescape") == address:
            path.unlink()
