"""The lock of the worker that prepares the journal. A worker that waits logs which process has it, and may give up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.util.file_states import is_at
from crucible_worker.util.private_files import open_private

__all__ = ["NOTICE_SECONDS", "WAIT_SECONDS", "exclusively"]

NOTICE_SECONDS = 1.0
"""Preparing takes milliseconds: a worker that waits longer logs it."""
WAIT_SECONDS = 60.0
"""Seconds before a worker gives up; the upgrade of a journal of many gigabytes takes less."""
_POLL_SECONDS = 0.05
_LOCKS = Path("/proc/locks")

_log = structlog.get_logger(__name__)


@contextlib.contextmanager
def exclusively(path: Path, ended: threading.Event) -> Iterator[None]:
    """Lock a file exclusively.

    Args:
        path: the file.
        ended: set once the start is given up: no thread may wait any longer.

    Raises:
        FailedPrecondition: another process has it for `WAIT_SECONDS`, or the start was given up.
    """
    while True:
        file = open_private(path, os.O_RDWR)
        try:
            _lock(file, path, ended)
            if not is_at(path, file):  # removed while this waited: others lock another file
                continue
            yield
            return
        finally:
            os.close(file)


def _lock(file: int, path: Path, ended: threading.Event) -> None:
    began, noticed = time.monotonic(), False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited >= WAIT_SECONDS:
            raise FailedPrecondition(
                f"{path} is locked by {_holder(file)} for more than {WAIT_SECONDS:.0f} s: end that process, or use "
                "another --state-dir",
                reason=Reason.STATE_DIR_LOCKED,
            )
        if waited >= NOTICE_SECONDS and not noticed:
            noticed = True
            _log.warning("waiting_for_lock", path=str(path), locked_by=_holder(file), at_most_seconds=WAIT_SECONDS)
        if ended.wait(_POLL_SECONDS):
            raise FailedPrecondition(f"the start ended before {path} was free", reason=Reason.STATE_DIR_LOCKED)


def _holder(file: int) -> str:
    """Which process has the lock, as far as the kernel shows it."""
    inode = os.fstat(file).st_ino
    with contextlib.suppress(OSError):  # there is no such list in some containers
        for line in _LOCKS.read_text().splitlines():
            # "3: FLOCK  ADVISORY  WRITE 26020 fe:00:2179904 0 EOF"; "->" precedes those that wait.
            _, kind, _, _, pid, place, *_ = line.split()
            if kind == "FLOCK" and place.split(":")[-1] == str(inode):
                return f"process {pid} ({_command(pid)})"
    return "an unknown process"


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except OSError:
        return "its command is not visible"
