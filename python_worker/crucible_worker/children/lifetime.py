"""How long a process lives that a worker starts: no longer than its parent, as the kernel sees to."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["die_with", "outlive"]

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel for a SIGKILL when the parent ends, however it ends; end at once where it has ended already.

    Raises:
        OSError: the kernel refuses.
    """
    _at_its_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive() -> None:
    """Have this process be killed with its parent no more: it hears of that by itself, and has others to end first."""
    _at_its_death(0)


def _at_its_death(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
