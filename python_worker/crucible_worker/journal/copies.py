"""How workers detect that the journal is a copy, or was set back to an older state. Then its log gets a new identity.

Subscribers resume by the log's identity and a sequence. A restored backup has the identity of its log, and assigns
sequences again that subscribers have seen. So the journal records which file it is, and a file next to it (the mark)
records up to which sequence events were committed:

| what happened                                      | what shows it                                               |
|----------------------------------------------------|-------------------------------------------------------------|
| the journal, or its directory, was copied or moved | the journal's file was born at another time                 |
| an older journal was copied over the present one   | the mark's sequence lies beyond that of the journal         |
| an older directory was copied over the present one | two marks: the present one's name is its sequence           |
| a snapshot of the whole file system was restored   | nothing, unless the mark is removed                         |

After a false alarm, subscribers get OTHER_LOG and read the log from its beginning. No evaluation changes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import sqlite3
import struct
import uuid
from pathlib import Path

import structlog

from crucible_worker.journal.queries import Head, Reads, head
from crucible_worker.util.files import open_private

__all__ = ["MARK_BYTES", "MARK_PREFIX", "Mark", "log_of_its_own", "mark_path", "read_marks", "recognize", "write_mark"]

MARK_PREFIX = "journal.told."
"""Beginning of a mark's file name; the rest is its sequence at the time of naming."""
MARK_BYTES = 54
"""Size of a mark."""

_MARK = re.compile(rb"([0-9a-f]{32}) ([0-9]{20})\n")
_AT_FDCWD, _STATX_BTIME = -100, 0x800
# struct statx: its mask, and the seconds and nanoseconds of the birth.
_STATX_BYTES, _MASK, _BIRTH = 256, struct.Struct("I"), struct.Struct("80xqI")

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Up to which sequence the events of a log were committed, at least."""

    log_id: str
    """The log; empty if the mark cannot be read."""
    sequence: int
    """The sequence."""

    def fits(self, log: Head) -> bool:
        """Whether the log is this one, and has all that was committed."""
        return self.log_id == log.log_id and self.sequence <= log.sequence

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return f"{self.log_id} {self.sequence:020d}\n".encode()

    @classmethod
    def of_bytes(cls, content: bytes) -> Mark:
        """Read the content of a file; a mark of no log if it is damaged."""
        found = _MARK.fullmatch(content)
        return cls("", 0) if found is None else cls(found[1].decode(), int(found[2]))


def read_marks(state_dir: Path) -> dict[Path, Mark]:
    """The marks of a state directory: one, unless there is none yet or files were copied."""
    marks: dict[Path, Mark] = {}
    for path in state_dir.glob(f"{MARK_PREFIX}*"):
        try:
            marks[path] = Mark.of_bytes(path.read_bytes())
        except FileNotFoundError:  # renamed meanwhile: it is found under its new name, here or by the next read
            continue
    return marks


def mark_path(state_dir: Path, sequence: int) -> Path:
    """Path of the mark that is named after this sequence."""
    return state_dir / f"{MARK_PREFIX}{sequence}"


def write_mark(state_dir: Path, mark: Mark) -> Path:
    """Make this the only mark."""
    kept = mark_path(state_dir, mark.sequence)
    for path in read_marks(state_dir):
        path.unlink(missing_ok=True)
    file = open_private(kept, os.O_WRONLY)
    try:
        os.write(file, mark.to_bytes())
    finally:
        os.close(file)
    return kept


def recognize(connection: sqlite3.Connection, path: Path) -> None:
    """Give the log a new identity if the journal is a copy or was set back; remember which file it is.

    Args:
        connection: to the journal, outside of a transaction.
        path: the journal.
    """
    if _is_recognized(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, inside the transaction: no other worker writes, so marks and log are consistent.
        if not _is_recognized(connection, path):
            _settle(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _is_recognized(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether this is the file that the journal has recorded, with all that its one mark says."""
    # The marks first: a commit meanwhile makes the log longer, but not the marks read here.
    marks = list(read_marks(path.parent).values())
    log = head(connection)
    return len(marks) == 1 and marks[0].fits(log) and _is_same(_remembered(connection), _FileIdentity.at(path))


def log_of_its_own(source: Reads) -> str:
    """Give the log a new identity, inside a transaction."""
    log_id = uuid.uuid4().hex
    source.execute("UPDATE head SET log_id = ?", (log_id,))
    return log_id


@dataclasses.dataclass(frozen=True, slots=True)
class _FileIdentity:
    """The identity of a file."""

    birth_ns: int
    """Time of birth; 0 if the file system does not have it. A copy never has the same, and no tool can set it."""
    inode: int
    """Its inode: a later file may get the same, and some file systems assign new ones at each mount."""

    @classmethod
    def at(cls, path: Path) -> _FileIdentity:
        return cls(_birth_ns(path), path.stat().st_ino)


def _is_same(one: _FileIdentity | None, other: _FileIdentity) -> bool:
    if one is None:
        return False
    if one.birth_ns and other.birth_ns:
        return one.birth_ns == other.birth_ns
    return one.inode == other.inode


def _remembered(connection: sqlite3.Connection) -> _FileIdentity | None:
    row = connection.execute("SELECT birth_ns, inode FROM journal_file").fetchone()
    return None if row is None else _FileIdentity(*row)


def _settle(connection: sqlite3.Connection, path: Path) -> None:
    log, marks = head(connection), read_marks(path.parent)
    remembered, present = _remembered(connection), _FileIdentity.at(path)
    # A journal without a recorded file was made by an earlier release: it may have no mark.
    moved = remembered is not None and not (marks and _is_same(remembered, present))
    if moved or not all(mark.fits(log) for mark in marks.values()):
        log_id = log_of_its_own(connection)
        _log.warning(
            "journal_is_a_copy",
            reason="it was copied, moved or restored: its log has a new identity, and subscribers read it anew",
            log_id=log_id,
            previous_log_id=log.log_id,
        )
        log = dataclasses.replace(log, log_id=log_id)
    connection.execute("INSERT OR REPLACE INTO journal_file VALUES (1, ?, ?)", (present.birth_ns, present.inode))
    write_mark(path.parent, Mark(log.log_id, log.sequence))


def _birth_ns(path: Path) -> int:
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:  # a C library without it
        return 0
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer):
        return 0
    if not _MASK.unpack_from(answer)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _BIRTH.unpack_from(answer)
    return seconds * 10**9 + nanoseconds
