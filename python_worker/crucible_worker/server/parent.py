"""The end of the process that started this one: heard by the end of standard input, as its pipe closes with it."""

from __future__ import annotations

import os
import stat
import threading

from crucible_worker.server.exit_guard import ExitGuard

__all__ = ["ORPHAN_SECONDS", "end_with_parent"]

ORPHAN_SECONDS = 1.5
"""From the parent's end to this process's; nobody waits for what it still does."""

_CHUNK_BYTES = 4096


def end_with_parent(guard: ExitGuard) -> bool:
    """End the process when standard input does; whether that can tell, as a terminal or a file cannot."""
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
    """Read what there is; False at the end, or where reading fails, as it then says no more."""
    try:
        return bool(os.read(0, _CHUNK_BYTES))
    except OSError:
        return False
