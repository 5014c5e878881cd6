"""Large messages without fresh pages: memory that was freed stays with the process for the next one.

By default the C library hands every freed buffer above some megabytes back to the system, and the next message of that
size is copied into pages that the kernel must find and clear first: 45 ms for 64 MiB where the copy takes 6, and gRPC
makes it on the event loop.
"""

from __future__ import annotations

import ctypes

__all__ = ["KEPT_BYTES", "keep_freed_memory"]

KEPT_BYTES = 256 * 1024 * 1024
"""Freed memory that is kept: two messages at their limit, each received and parsed."""

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Keep up to `KEPT_BYTES` of freed memory; whether this C library can be told so.

    For a process that is a worker and nothing else: it holds for every allocation from now on.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
