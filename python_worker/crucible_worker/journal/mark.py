"""Keeps the mark next to the journal up to date for one writer: up to which sequence events were committed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import structlog

from crucible_worker.journal.copies import MARK_BYTES, Mark, log_of_its_own, mark_path, read_marks, write_mark
from crucible_worker.journal.queries import Head, Reads

__all__ = ["RENAME_SECONDS", "JournalMark"]

RENAME_SECONDS = 60.0
"""Seconds between renames of the mark to its sequence: a copy of an older directory does not overwrite it."""

_SEQUENCE_AT = 33  # after the log's identity and a blank
_log = structlog.get_logger(__name__)


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
