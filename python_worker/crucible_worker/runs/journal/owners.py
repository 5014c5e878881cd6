"""Which worker runs an evaluation: one owner at a time, by a lock that the kernel releases when the process dies.

The locks are byte ranges of one file next to the journal, one byte per evaluation: nothing is created or removed per
evaluation, so nothing is left over. They belong to the open file description (`F_OFD_SETLK`), not to the process as
POSIX locks do, so that two workers in one process exclude each other too. Linux only, as the worker is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path

from crucible_worker.runs.journal.transaction import Transaction

__all__ = ["OwnerLocks"]

# struct flock: l_type, l_whence, l_start, l_len, l_pid, in native alignment.
_FLOCK = struct.Struct("@hhqqi")


class OwnerLocks:
    """The owner locks of one worker. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Open the lock file; create it with mode 0600 if it does not exist."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held: set[int] = set()
        self._guard = threading.Lock()

    def acquire(self, number: int, transaction: Transaction | None = None) -> bool:
        """Take an evaluation's lock; False if any worker has it, this one included. The kernel needs no transaction."""
        with self._guard:
            if number in self._held or not self._set(fcntl.F_WRLCK, number):
                return False
            self._held.add(number)
            return True

    def release(self, number: int) -> None:
        """Release a lock; does nothing if this worker does not have it."""
        with self._guard:
            if number in self._held:
                self._held.remove(number)
                self._set(fcntl.F_UNLCK, number)

    def is_free(self, number: int, transaction: Transaction | None = None) -> bool:
        """Whether no worker has the lock: an evaluation that is recorded as running has then lost its owner."""
        with self._guard:
            if number in self._held:
                return False
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, query)
            return _FLOCK.unpack(answer[: _FLOCK.size])[0] == fcntl.F_UNLCK

    async def take(self, number: int) -> bool:
        """As `acquire`."""
        return self.acquire(number)

    async def looks_free(self, number: int) -> bool:
        """As `is_free`."""
        return self.is_free(number)

    def check(self, number: int, transaction: Transaction) -> None:
        """Do nothing: the kernel takes a lock from no process that lives."""

    async def confirm(self, number: int) -> None:
        """Do nothing, as `check`."""

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Release a lock after the commit."""
        transaction.after_commit(lambda: self.release(number))

    def close(self) -> None:
        """Drop every lock."""
        with self._guard:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._held.clear()

    def _set(self, kind: int, number: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True
