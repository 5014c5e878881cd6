"""Keeps freed memory while large messages arrive, and gives it back to the system afterwards.

By default the C library returns every freed buffer above some megabytes to the system, and the next message of that
size is copied into pages that the kernel must find and clear first: 45 ms for 64 MiB, while the copy takes 6, and gRPC
makes it on the event loop. So freed memory stays in the process. It does so in the arenas of all threads, whatever the
threshold of the first: twelve messages of 53 MB left 0.5 to 1 GB. Once no large request is in work, it is given back.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

__all__ = [
    "KEPT_BYTES",
    "NEW_OBJECTS",
    "WORTH_BYTES",
    "collect_rarely",
    "give_back_when_idle",
    "resident_bytes",
    "tune_malloc",
    "used_bytes",
]

KEPT_BYTES = 256 * 1024 * 1024
"""Freed memory that is kept: two messages at their limit, each received and parsed."""
WORTH_BYTES = 64 * 1024 * 1024
"""Growth of the process before memory is given back: that takes a moment, and slows the next messages."""
NEW_OBJECTS = 10_000
"""New containers that are in use before the garbage collector looks for cycles among them; Python's default is 700."""
_LONGEST_PAUSE_SECONDS = 600.0
"""Longest pause between two attempts, which grows if they give nothing back."""
# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def tune_malloc() -> bool:
    """Keep up to `KEPT_BYTES` of freed memory; returns whether this C library supports that.

    Only for a process that is a worker and nothing else: it affects every later allocation.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))


def collect_rarely() -> None:
    """Let the garbage collector look for cycles less often, and never among the objects that are loaded now.

    What samples and calls leave behind is freed without it, as it has no cycles. Results that wait to be written have
    none either, and by default they are looked through again and again: up to 10 % of the time for a sample whose
    model answers at once. Looking through what is loaded would delay every probe for 20 ms.

    Only for a process that is a worker and nothing else.
    """
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


async def give_back_when_idle(quiet_seconds: Callable[[], float], idle_seconds: float) -> None:
    """Give freed memory back to the system whenever no large request has been in work for a while.

    Runs until it is cancelled; returns at once if this C library cannot do so.

    Args:
        quiet_seconds: how long no large request has been in work.
        idle_seconds: the least such time.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return
    log = structlog.get_logger("crucible_worker.server")
    least = left = resident_bytes()
    pause = resume = 0.0
    while True:
        await asyncio.sleep(idle_seconds)
        before, now = resident_bytes(), time.monotonic()
        least = min(least, before)
        if before - least < WORTH_BYTES or quiet_seconds() < idle_seconds:
            continue
        # Memory that was in use at the last attempt may be free now, but after an attempt in vain the next comes later.
        if before - left < WORTH_BYTES and now < resume:
            continue
        gc.collect(0)  # new cycles, which `collect_rarely` leaves for longer, may hold large messages
        # In a thread, without the GIL. Allocations from the same arena wait for it: 70 ms for 420 MB.
        await asyncio.to_thread(trim, 0)
        left = resident_bytes()
        vain = before - left < WORTH_BYTES
        pause = min(max(2 * pause, idle_seconds), _LONGEST_PAUSE_SECONDS) if vain else 0.0
        resume = time.monotonic() + pause
        log.debug("memory_given_back", bytes=before - left, resident=left)


class _Mallinfo2(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    )


def used_bytes() -> int:
    """Memory that this process has allocated and not freed, by glibc; elsewhere on Linux, what is in RAM.

    Freed memory that is kept is not counted: see mallinfo2(3).
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return resident_bytes()
    mallinfo.restype = _Mallinfo2
    found = mallinfo()
    return found.uordblks + found.hblkhd


def resident_bytes() -> int:
    """Memory of this process that is in RAM; Linux."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
