"""A process that a worker starts lives no longer than its parent: the kernel kills it."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["adopt", "die_with", "outlive"]

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
