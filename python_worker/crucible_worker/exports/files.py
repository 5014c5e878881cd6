"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from crucible_worker.util.files import FILE_MODE

__all__ = ["PART_SUFFIX", "part_prefix", "whole_file"]

PART_SUFFIX = ".part"
"""End of the name of a file that is not complete."""
_PREFIX_BYTES = 200


def part_prefix(path: Path) -> str:
    """Beginning of the names of incomplete versions of a file, which are in its folder."""
    return f".{os.fsdecode(os.fsencode(path.name)[:_PREFIX_BYTES])}."


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file; it gets its name when the block ends without an error, and replaces a file of this name.

    A link is followed: the file that it names is replaced, and not the link. A pipe or a device is written to directly.

    A new file gets the mode that the umask leaves, and one that is replaced keeps its mode.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:  # a folder is an error; the link /dev/stdout of a pipe names no path
            yield file
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{part_prefix(path)}{secrets.token_hex(8)}{PART_SUFFIX}")
    # Until it is complete, it is no more readable than the file that it replaces.
    mode = FILE_MODE if path.exists() else 0o666
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
