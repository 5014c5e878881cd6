"""Calls to the system that fail when a test says so, in a worker that is a process of its own.

failpoints = Failpoints.built(tmp_path)
worker = ...                                    # started with failpoints.environment
failpoints.arm(worker.pid, Calls.WRITE, errno.ENOSPC, first=3, under=state_dir)
...                                             # the third write to a file of the state directory fails
failpoints.disarm()                             # Outcome(seen=17, failed=1, where="pwrite64 /…/journal.db-wal")
"""

from __future__ import annotations

import dataclasses
import enum
import mmap
import os
import struct
import subprocess
from pathlib import Path

from tests import needs

__all__ = ["FIRST_PROCESS", "NEVER", "Calls", "Failpoints", "Outcome"]

FIRST_PROCESS = -1
"""In place of a process id: the next process that is started with the library."""
NEVER = 2**62
"""As the number of the first call that fails: calls are counted only."""

_SOURCE = Path(__file__).with_name("failpoints.c")
_PATH_BYTES = 512
_FIELDS = struct.Struct(f"=7q{_PATH_BYTES}s{_PATH_BYTES}s")
_PID = struct.Struct("=q")


class Calls(enum.IntFlag):
    """Kinds of calls, as in `failpoints.c`."""

    OPEN = 1
    """Of files."""
    DESCRIPTOR = 2
    """All else that makes a file descriptor, or receives one."""
    FORK = 4
    THREAD = 8
    CONNECT = 16
    READ = 32
    """From files."""
    WRITE = 64
    """To files."""
    SYNC = 128
    LOCK = 256
    """Of files."""
    MAP = 512
    """Of files."""
    RENAME = 1024
    """Changes of folders."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What happened while the library was armed."""

    seen: int
    """Calls of the kinds."""
    failed: int
    """How many of them failed."""
    where: str
    """The first that failed."""


class Failpoints:
    """The library of one test; see the module. Made by `built`."""

    def __init__(self, library: Path, control: Path) -> None:
        control.write_bytes(bytes(_FIELDS.size))
        self.environment = {"LD_PRELOAD": str(library), "FAILPOINTS": str(control)}
        """Variables of a process whose calls can fail."""
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _FIELDS.size)

    @classmethod
    def built(cls, folder: Path) -> Failpoints:
        """Compile it into a folder; the test is skipped on a machine without a C compiler."""
        compiler = needs.program("cc")
        library = folder / "failpoints.so"
        command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", library, _SOURCE, "-ldl"], check=True)
        return cls(library, folder / "failpoints.control")

    def arm(
        self, pid: int, calls: Calls, error: int, first: int = NEVER, count: int = 1, under: Path | None = None
    ) -> None:
        """Count calls of a process from now on, and have some of them fail.

        Args:
            pid: the process, or `FIRST_PROCESS`.
            calls: their kinds.
            error: the errno of those that fail.
            first: the number of the first that fails, from 1.
            count: how many fail in a row.
            under: only calls for files below this folder, where they are for files; all if None.
        """
        prefix = b"" if under is None else os.fsencode(under)
        _FIELDS.pack_into(self._control, 0, 0, calls, error, first, count, 0, 0, prefix, b"")
        _PID.pack_into(self._control, 0, pid)

    def disarm(self) -> Outcome:
        """Let every call succeed again."""
        _PID.pack_into(self._control, 0, 0)
        *_, seen, failed, _, where = _FIELDS.unpack_from(self._control)
        return Outcome(seen, failed, where.rstrip(b"\0").decode(errors="replace"))
