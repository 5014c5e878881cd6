"""How many files and connections the process may have open at once: more than the system gives a process at first."""

from __future__ import annotations

import contextlib
import dataclasses
import resource

import structlog

from crucible_worker.util.limits import WorkerLimits

__all__ = ["RESERVE", "with_descriptors"]

RESERVE = 256
"""Descriptors for all else: the journal, data sets, models and processes; without them nothing can be written."""

MOST = 2**20
"""Most descriptors that the process asks for: some libraries look through all that there may be."""


def with_descriptors(limits: WorkerLimits) -> WorkerLimits:
    """Raise the soft limit of open files to the hard one, and keep `RESERVE` of them from connections.

    Only for a process that is a worker and nothing else. Its children inherit the limit.

    Returns:
        The limits, with fewer `max_connections` if the system does not allow as many; the log says so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the kernel allows fewer than the hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    found, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if found == resource.RLIM_INFINITY or found >= limits.max_connections + RESERVE:
        return limits
    left = max(1, found - RESERVE)
    structlog.get_logger("crucible_worker.server").warning(
        "few_descriptors",
        open_files=found,
        max_connections=left,
        cure=f"a limit of open files of at least {limits.max_connections + RESERVE:,}: ulimit -n, or LimitNOFILE",
    )
    return dataclasses.replace(limits, max_connections=left)
