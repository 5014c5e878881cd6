"""Memory of large messages, kept by the allocator instead of given back to the system after each."""

from __future__ import annotations

import functools

__all__ = ["keep_large_buffers"]

_LARGEST_THRESHOLD_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = 64 * 1024


@functools.cache
def keep_large_buffers() -> None:
    """Let freed buffers of up to 32 MiB be used again, once for the process.

    glibc takes blocks above a threshold from the system and hands them back when they are freed; each page of the next
    one is then zeroed anew by a fault. A 9.4 MB message lives in a few such blocks: 4 of the 9 ms that sending it took
    were faults. The threshold rises to the largest block of up to 32 MiB that was ever freed, and with it how much free
    memory is kept: twice that (mallopt(3), M_MMAP_THRESHOLD). So such a block is freed here; none of its pages is ever
    touched. Where malloc is another one, nothing changes.
    """
    bytes(_LARGEST_THRESHOLD_BYTES - _PAGE_BYTES)
