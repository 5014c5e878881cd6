"""Processes as the kernel shows them: each may end while it is read, and then nothing is found of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "alive",
    "children_of",
    "command_of",
    "grading_children",
    "is_alive",
    "processes_below",
    "read_of",
    "rss_of",
    "seconds_of",
    "state_of",
    "status_of",
]


def read_of(pid: int, name: str) -> bytes:
    """A file of `/proc/PID`; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def command_of(pid: int) -> bytes:
    """Its command line, words apart by zero bytes; empty if it has ended."""
    return read_of(pid, "cmdline")


def state_of(pid: int) -> str:
    """As the system calls it: "R" where it runs just now, "Z" where its parent has not taken note; empty if none is."""
    return next(iter(_stat(pid)), "")


def is_alive(pid: int) -> bool:
    """Whether it has not ended; one that only waits for its parent to take note has."""
    return state_of(pid) not in ("", "Z", "X")


def alive(pids: Iterable[int]) -> set[int]:
    """Those that have not ended."""
    return {pid for pid in pids if is_alive(pid)}


def children_of(pid: int, command: bytes = b"") -> list[int]:
    """The living children of all threads of a process, those alone whose command line has these bytes."""
    return [child for child in _children(pid) if is_alive(child) and command in command_of(child)]


def processes_below(pid: int) -> set[int]:
    """Every process that descends from one, those that a parent has not taken note of included."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = set(_children(waiting.pop())) - found
        found |= children
        waiting += children
    return found


def grading_children(pid: int) -> list[int]:
    """Children of the fork servers of a process's pools."""
    return [child for server in children_of(pid, b"crucible_worker.grading.pool_host") for child in children_of(server)]


def status_of(pid: int, field: str) -> int:
    """A number of `/proc/PID/status` in bytes, such as `VmRSS`; the process has to be there."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def rss_of(pid: int) -> int:
    """Its resident memory in bytes."""
    return status_of(pid, "VmRSS")


def seconds_of(pid: int) -> float:
    """CPU time so far."""
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for thread in threads for child in read_of(pid, f"task/{thread}/children").split()]


def _stat(pid: int) -> list[str]:
    """Fields of `/proc/PID/stat` from the state on; the name before it may hold blanks and brackets."""
    return read_of(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
