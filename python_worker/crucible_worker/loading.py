"""Importing what a worker is made of, many hundred modules at once, without what that costs beside the imports."""

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

    What is loaded stays: it is not looked through for garbage, now or later, which would be a sixth of a start. The
    threads of numpy's OpenBLAS sleep where nobody has work for them, unless the environment has a say in that; by
    default each would first wait awake for it, on a core of its own, for 40 ms.
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
