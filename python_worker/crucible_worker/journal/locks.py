"""Which worker runs an evaluation, and which prepares the journal: one at a time, by locks that end with the process.

The kernel releases them. Those of evaluations are byte ranges of one file next to the journal, one byte per evaluation:
nothing is created or removed per evaluation, so nothing is left over.
They belong to the open file description (`F_OFD_SETLK`), not to the process as
POSIX locks do, so that two workers in one process exclude each other too. Linux only, as the worker is.

A lock in a file that was removed, moved or replaced excludes no other worker. So each call checks first that the file
is still at its path. If it is not, this worker owns nothing any more, and its further locks are in the new file. The
journal counts the owners of an evaluation, for file systems on which a lock excludes only the processes of one machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal.store import Transaction
from crucible_worker.journal.unavailable import JournalUnavailable, OwnershipLost
from crucible_worker.util.files import is_at, open_private

__all__ = ["NOTICE_SECONDS", "WAIT_SECONDS", "OwnerLocks", "exclusively"]

# The lock of the worker that prepares the journal. A worker that waits logs which process has it, and may give up.

NOTICE_SECONDS = 1.0
"""Preparing takes milliseconds: a worker that waits longer logs it."""
WAIT_SECONDS = 60.0
"""Seconds before a worker gives up; the upgrade of a journal of many gigabytes takes less."""
_POLL_SECONDS = 0.05
_LOCKS = Path("/proc/locks")


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


# struct flock: l_type, l_whence, l_start, l_len, l_pid, in native alignment.
_FLOCK = struct.Struct("@hhqqi")
_NEXT = """INSERT INTO owner_generations VALUES (?, 1)
           ON CONFLICT (number) DO UPDATE SET generation = generation + 1 RETURNING generation"""
_LAST = "SELECT generation FROM owner_generations WHERE number = ?"

_log = structlog.get_logger(__name__)


class OwnerLocks:
    """The owner locks of one worker. Safe to use from several threads."""

    def __init__(self, path: Path, *, counted: bool = False) -> None:
        """Open the lock file; create it with mode 0600 if it does not exist.

        Args:
            path: of the file.
            counted: whether the journal counts the owners of each number; each is then acquired in a transaction.

        Raises:
            JournalUnavailable: it cannot be opened.
        """
        self._path, self._counted = path, counted
        self._file = -1
        self._closed = False
        self._held: dict[int, int] = {}
        self._guard = threading.Lock()
        self._open()

    def acquire(self, number: int, transaction: Transaction | None = None) -> bool:
        """Take an evaluation's lock; False if any worker has it, this one included. The kernel needs no transaction."""
        with self._guard:
            self._look()
            if number in self._held or not self._set(fcntl.F_WRLCK, number):
                return False
            self._held[number] = 0
        if self._counted and transaction is not None:
            transaction.if_undone(lambda: self.release(number))
            (self._held[number],) = transaction.execute(_NEXT, (number,)).fetchone()
        return True

    def release(self, number: int) -> None:
        """Release a lock; does nothing if this worker does not have it."""
        with self._guard:
            if number in self._held:
                del self._held[number]
                self._set(fcntl.F_UNLCK, number)

    def is_free(self, number: int, transaction: Transaction | None = None) -> bool:
        """Whether no worker has the lock: an evaluation that is recorded as running has then lost its owner."""
        with self._guard:
            self._look()
            if number in self._held:
                return False
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            try:
                answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, query)
            except OSError as error:
                raise self._unlockable(error) from error
            return _FLOCK.unpack(answer[: _FLOCK.size])[0] == fcntl.F_UNLCK

    async def take(self, number: int) -> bool:
        """As `acquire`."""
        return self.acquire(number)

    async def looks_free(self, number: int) -> bool:
        """As `is_free`."""
        return self.is_free(number)

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse what this worker does not own, or owns no longer: the kernel keeps locks for those who live."""
        generation = self._check(number)
        if generation and transaction.execute(_LAST, (number,)).fetchone() != (generation,):
            _log.error("owned_by_another_worker", path=str(self._path), number=number)
            self.release(number)
            raise OwnershipLost()

    async def confirm(self, number: int) -> None:
        """As `check`."""
        self._check(number)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Release a lock after the commit."""
        transaction.after_commit(lambda: self.release(number))

    def close(self) -> None:
        """Drop every lock."""
        with self._guard:
            self._closed = True
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._held.clear()

    def _check(self, number: int) -> int:
        with self._guard:
            self._look()
            if number not in self._held:
                raise OwnershipLost()
            return self._held[number]

    def _look(self) -> None:
        """Own nothing any more if the file is not at its path: others lock another one.

        Raises:
            JournalUnavailable: the state directory does not exist, or the file cannot be opened.
        """
        if self._closed or (self._file >= 0 and _identity(os.fstat(self._file)) == _identity_at(self._path)):
            return
        if not os.path.isdir(self._path.parent):
            raise JournalUnavailable(f"{self._path.parent} was moved or removed")
        if self._file >= 0:
            _log.error("lock_file_was_replaced", path=str(self._path), lost=len(self._held))
            os.close(self._file)
            self._held.clear()
            self._file = -1
        self._open()

    def _open(self) -> None:
        try:
            self._file = open_private(self._path, os.O_RDWR)
        except OSError as error:
            raise JournalUnavailable(f"cannot open {self._path}: {error.strerror}") from error

    def _set(self, kind: int, number: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise self._unlockable(error) from error
        return True

    def _unlockable(self, error: OSError) -> JournalUnavailable:
        return JournalUnavailable(f"cannot lock {self._path}: {error.strerror}")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _identity_at(path: Path) -> tuple[int, int] | None:
    try:
        return _identity(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalUnavailable(f"cannot look at {path}: {error.strerror}") from error
