"""What processes of foreign code share: which of the worker's variables they get, and that they die with it."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["die_with", "outlive", "passed_variables"]

_PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
_PR_SET_PDEATHSIG = 1


def passed_variables(*further: str) -> dict[str, str]:
    """Variables that such a process gets of the worker's: none of them is ever a secret, but those of `further`."""
    return {name: os.environ[name] for name in (*_PASSED, *further) if name in os.environ}


def die_with(parent: int) -> None:
    """Have this process be killed when its parent dies, however it dies."""
    _at_its_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


def outlive() -> None:
    """Have this process be killed with its parent no more: it hears of that by itself, and has others to end first."""
    _at_its_death(0)


def _at_its_death(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
