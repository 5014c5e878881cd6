"""The journal in one SQLite file in WAL mode, shared by the workers of a machine."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from crucible_worker.journal.copies import MARK_BYTES, Mark, log_of_its_own, mark_path, read_marks, write_mark
from crucible_worker.journal.locks import OwnerLocks
from crucible_worker.journal.queries import Head, JournalDamaged, Reads, head
from crucible_worker.journal.schema import SqliteConnection, connect
from crucible_worker.journal.store import PollingNotifier, Submit, Transaction
from crucible_worker.util.tasks import Background

__all__ = ["SqliteStore"]

# Keeps the mark next to the journal up to date for one writer: up to which sequence events were committed.

RENAME_SECONDS = 60.0
"""Seconds between renames of the mark to its sequence: a copy of an older directory does not overwrite it."""

_SEQUENCE_AT = 33  # after the log's identity and a blank


class JournalMark:
    """Used only by the writer's thread. Other workers write to the same mark, inside transactions except in `keep`."""

    def __init__(self, state_dir: Path) -> None:
        """Store the directory; the first transaction opens the mark."""
        self._state_dir = state_dir
        self._file = -1
        self._named_at = -RENAME_SECONDS

    def check(self, source: Reads, log: Head) -> None:
        """Update the mark at the beginning of a transaction; a log that was set back gets a new identity.

        Args:
            source: the transaction.
            log: as committed.

        Raises:
            OSError: the mark cannot be read or written.
        """
        mark = self._read(log)
        if not mark.fits(log):
            log_id = log_of_its_own(source)
            _log.warning("journal_was_set_back", log_id=log_id, previous_log_id=log.log_id, sequence=log.sequence)
            # Before the commit: no other worker may read the new log with the mark of the old one.
            os.pwrite(self._file, Mark(log_id, log.sequence).to_bytes(), 0)
        elif mark.sequence < log.sequence:
            self._write(log.sequence)
        if time.monotonic() - self._named_at >= RENAME_SECONDS:
            self.name(log.sequence)

    def keep(self, sequence: int) -> None:
        """Write the committed sequence. If another worker has committed more meanwhile, `check` corrects the mark."""
        try:
            self._write(sequence)
        except OSError as error:  # the commit stands; the next transaction tries again
            _log.warning("mark_not_written", reason=str(error))

    def name(self, sequence: int) -> None:
        """Name the mark after its sequence, inside a transaction."""
        named, inode = mark_path(self._state_dir, sequence), os.fstat(self._file).st_ino
        for path in read_marks(self._state_dir):
            if path != named and path.stat().st_ino == inode:
                path.rename(named)
        self._named_at = time.monotonic()

    def close(self) -> None:
        """Close the mark."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self, log: Head) -> Mark:
        if self._file < 0 or os.fstat(self._file).st_nlink == 0:
            self.close()
            path = next(iter(read_marks(self._state_dir)), None)
            if path is None:  # it was removed: only the next worker that starts reacts to that
                path = write_mark(self._state_dir, Mark(log.log_id, log.sequence))
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return Mark.of_bytes(os.pread(self._file, MARK_BYTES + 1, 0))

    def _write(self, sequence: int) -> None:
        os.pwrite(self._file, f"{sequence:020d}".encode(), _SEQUENCE_AT)


CLOSE_SECONDS = 0.2
"""Seconds that the last transaction of a writer waits for those of other workers."""

_PRIMARY_CODE = 0xFF  # of an extended one, in SQLite's numbers

_log = structlog.get_logger(__name__)


class SqliteStore:
    """See `crucible_worker.journal.store.Store`."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, JournalDamaged)
    beat_seconds: float | None = None

    def __init__(self, path: Path) -> None:
        """For a file that `schema.prepare` has prepared."""
        self._path = path
        self.folder = path.parent

    def connect(self) -> SqliteConnection:
        """Another connection that only reads."""
        return connect(self._path, read_only=True)

    def writing(self) -> _Writing:
        """The connection that writes."""
        return _Writing(self._path)

    def status(self, background: Background) -> _StatusRow:
        """What the event loop asks."""
        return _StatusRow(self.connect())

    def owners(self, kind: str, submit: Submit, read: Callable[..., Any]) -> OwnerLocks:
        """Locks on the bytes of one file next to the journal."""
        return OwnerLocks(self.folder / f"{kind}.lock", counted=kind == "owners")

    def leads(self, transaction: Transaction) -> bool:
        """All workers are on one machine, and read the same clocks."""
        return True

    def is_lasting(self, error: Exception) -> bool:
        """Whether an error of a reader is not a transient one."""
        return not isinstance(error, sqlite3.OperationalError)

    def is_lost(self, error: Exception) -> bool:
        """A connection to a file is never lost."""
        return False


class _StatusRow:
    """One row, read on the loop in 5 us where a reader's thread takes 50."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self.commits = PollingNotifier(connection)

    def head(self) -> Head:
        return head(self._connection)

    async def returns(self) -> bool:
        return True

    def committed(self, sequence: int) -> None:
        self.commits.publish()

    async def aclose(self) -> None:
        self.commits.close()


class _Writing:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.source = connect(path)
        self._files = {path: _identity(path)}
        """What was at the path of the journal; since the first transaction also of what SQLite has next to it."""
        self._told = JournalMark(path.parent)
        self._read_only = False
        """SQLite has opened a file for reading only, for good: it could not be opened for writing at that moment."""

    def begin(self) -> Head:
        self._refuse_replaced()
        if self._read_only:
            before, self.source = self.source, connect(self._path)
            before.close()
            self._read_only = False
        self.source.execute("BEGIN IMMEDIATE")
        log = head(self.source)
        if len(self._files) == 1:
            beside = [self._path.with_name(self._path.name + ending) for ending in ("-wal", "-shm")]
            self._files |= {path: _identity(path) for path in beside}
        self._told.check(self.source, log)
        return log

    def commit(self, before: int, sequence: int) -> None:
        if sequence != before:
            self.source.execute("UPDATE head SET sequence = ?", (sequence,))
        self.source.execute("COMMIT")
        if sequence != before:
            self._told.keep(sequence)

    def roll_back(self) -> None:
        # SQLite may have rolled back by itself (a full disk): in_transaction shows it.
        if not self.source.in_transaction:
            return
        try:
            self.source.execute("ROLLBACK")
        except sqlite3.Error as error:
            # The next transaction cannot begin, fails, and this runs again until the disk works.
            _log.warning("rollback_failed", reason=str(error))

    def recovers(self, error: Exception) -> bool:
        """SQLite has waited for the other writers already."""
        if isinstance(error, sqlite3.OperationalError):
            self._read_only = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_READONLY
        return False

    def hurry(self) -> None:
        """SQLite waits for other writers only, and not for long."""

    def close(self) -> None:
        self._name_mark()
        self._told.close()
        self.source.close()

    def _name_mark(self) -> None:
        """Leave a mark that an older state directory, copied over this one, does not overwrite."""
        try:
            self.source.execute(f"PRAGMA busy_timeout = {int(CLOSE_SECONDS * 1000)}")
            self._told.name(self.begin().sequence)
            self.source.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            _log.warning("mark_not_named", reason=str(error))
            self.roll_back()

    def _refuse_replaced(self) -> None:
        """Write nothing to a file that was moved away, or beside one that others have opened: it would be lost."""
        for path, before in self._files.items():
            if _identity(path) != before:
                raise sqlite3.OperationalError(f"{path.name} was moved, removed or replaced: restart this worker")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
