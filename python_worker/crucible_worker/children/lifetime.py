"""What a child asks of the kernel as it begins: to die with its parent, and bounds on what it takes.

`python -m crucible_worker.children.lifetime PARENT COMMAND...` runs a command that the kernel kills with its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

__all__ = [
    "GROWTH",
    "adopt",
    "begin",
    "die_with",
    "limit",
    "limit_growth",
    "lower_priority",
    "outlive",
    "set_oom_score",
]

# What the kernel is asked for: bounds of a child, which process ends if memory runs out, and which computes first.

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


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int) -> None:
    """Have the kernel send SIGKILL when the parent ends, for any reason; end at once if it has already ended.

    Raises:
        OSError: the kernel refuses.
    """
    _at_its_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive() -> None:
    """No longer be killed with the parent: this process detects its end, and has to end other processes first."""
    _at_its_death(0)


def adopt() -> None:
    """Become the parent of each process that a child of this one has started and left behind.

    Raises:
        OSError: the kernel refuses.
    """
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def _at_its_death(number: int) -> None:
    _set(_PR_SET_PDEATHSIG, number)


def _set(attribute: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(attribute, value, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


# How a child begins: bound to its parent's life, at one end of a socket.


def begin(
    module: str, description: str | None, parser: argparse.ArgumentParser | None = None
) -> tuple[argparse.Namespace, socket.socket]:
    """Read the command line that `Process.start` wrote; from here on the child is killed when its parent ends.

    Args:
        module: what the parent started, for the help.
        description: likewise.
        parser: with the module's further arguments.

    Returns:
        The arguments, and the child's end of the socket.
    """
    parser = parser or argparse.ArgumentParser()
    parser.prog, parser.description = module, description
    parser.add_argument("--parent", type=int, required=True, help="process id of the process that started this one")
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of the socket to it")
    arguments = parser.parse_args()
    die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    os.set_inheritable(arguments.socket, False)
    return arguments, socket.socket(fileno=arguments.socket)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
