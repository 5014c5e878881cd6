"""Importing a worker's many hundred modules at once, without the cost of garbage collection and waiting threads."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

__all__ = ["loading"]

_THREADS_WAIT = "OPENBLAS_THREAD_TIMEOUT"
_SHORTEST = "4"  # 16 cycles


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Import within this, once, in a process that is a worker and nothing else.

    Loaded objects stay: the garbage collector does not scan them, now or later, which would take a sixth of a start.
    The threads of numpy's OpenBLAS sleep when they have no work, unless the environment sets this otherwise; by default
    each would first spin for 40 ms, on a separate core.
    """
    gc.disable()
    ours = _THREADS_WAIT not in os.environ
    if ours:
        os.environ[_THREADS_WAIT] = _SHORTEST
    try:
        yield
    finally:
        if ours:
            # It has been read. Children inherit what is there, and may multiply more than a worker does.
            del os.environ[_THREADS_WAIT]
        gc.freeze()
        gc.enable()
