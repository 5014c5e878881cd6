"""Detects the end of the parent process by the end of standard input: its pipe closes with the parent."""

from __future__ import annotations

import os
import stat
import threading

from crucible_worker.server.exit_guard import ExitGuard

__all__ = ["ORPHAN_SECONDS", "end_with_parent"]

ORPHAN_SECONDS = 1.5
"""Seconds from the parent's end to that of this process; no caller waits any longer."""

_CHUNK_BYTES = 4096


def end_with_parent(guard: ExitGuard) -> bool:
    """End the process when standard input ends; returns whether it is a pipe or socket, as only these show it."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    # A thread, as the event loop may be busy; a daemon, as nothing ends its reading but the parent.
    threading.Thread(target=_watch, args=(guard,), name="parent-watch", daemon=True).start()
    return True


def _watch(guard: ExitGuard) -> None:
    while _read():
        pass
    guard.arm(ORPHAN_SECONDS)


def _read() -> bool:
    """Read what there is; False at the end, or after an error, as no more can come then."""
    try:
        return bool(os.read(0, _CHUNK_BYTES))
    except OSError:
        return False
