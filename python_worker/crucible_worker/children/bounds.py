"""What the kernel is asked for: bounds of a child, which process ends if memory runs out, and which computes first."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

__all__ = ["GROWTH", "limit", "limit_growth", "lower_priority", "set_oom_score"]

GROWTH = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
"""Limits of memory, and what the kernel calls a process's part of each."""
_OOM_SCORE_ADJ = "1000"
_NICENESS = 10


def limit(kind: int, value: int) -> None:
    """Set a limit of this process, unless it has a lower one."""
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def limit_growth(more_bytes: int, *kinds: int) -> None:
    """Let this process have so much memory in addition to what it has now.

    Args:
        more_bytes: how much.
        kinds: keys of `GROWTH`.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    for kind in kinds:
        limit(kind, int(status[GROWTH[kind]].split()[0]) * 1024 + more_bytes)


def set_oom_score() -> None:
    """Have the kernel end this process, and no other, if memory runs out."""
    with contextlib.suppress(OSError):  # no /proc, or a sandbox without this file: nothing is worse than before
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)


def lower_priority(niceness: int = _NICENESS) -> None:
    """Let what replies to callers go first: lower the priority of the calling thread, and of what it starts later.

    Linux has a priority for each thread. That of a process is its first thread's.

    Args:
        niceness: added to its own; 19 is the most.
    """
    os.nice(niceness)
