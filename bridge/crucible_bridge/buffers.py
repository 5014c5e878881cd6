"""Memory of large messages, reused by the allocator instead of returned to the system after each."""

from __future__ import annotations

import functools

__all__ = ["keep_large_buffers"]

_LARGEST_THRESHOLD_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = 64 * 1024


@functools.cache
def keep_large_buffers() -> None:
    """Let the allocator reuse freed buffers of up to 32 MiB; one call sets it for the process.

    glibc takes blocks above a threshold from the system and returns them when they are freed; each page of the next
    one is then zeroed anew by a page fault. A 9.4 MB message lives in a few such blocks: page faults took 4 of the 9 ms
    of sending it. The threshold rises to the largest block of up to 32 MiB that was ever freed. With it rises the free
    memory that stays allocated: twice that (mallopt(3), M_MMAP_THRESHOLD). So such a block is freed here; none of its
    pages is ever touched. With an allocator other than glibc's, nothing changes.
    """
    bytes(_LARGEST_THRESHOLD_BYTES - _PAGE_BYTES)
