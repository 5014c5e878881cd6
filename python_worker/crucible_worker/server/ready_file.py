"""The ready file: where the worker listens, there only once it does, never half written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["remove_ready_file", "write_ready_file"]


def write_ready_file(path: Path, address: str) -> None:
    """Write the address so that a reader finds the whole of it or no file.

    Raises:
        OSError: the folder is missing, or cannot be written to.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="ascii", errors="surrogateescape") as file:
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
