"""Which processes there are, as the kernel tells: the tests of the pool believe nobody else."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["children_of", "grading_children", "is_alive", "rss_of"]


def children_of(pid: int) -> list[int]:
    """Processes whose parent is this one, zombies left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        state, parent = rest.split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(name.split()[0]))
    return found


def grading_children(pid: int) -> list[int]:
    """Children of the fork servers of this process's pools."""
    return [
        child
        for server in children_of(pid)
        if b"crucible_worker.grading.pool_host" in _command(server)
        for child in children_of(server)
    ]


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def rss_of(pid: int) -> int:
    """Its resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
