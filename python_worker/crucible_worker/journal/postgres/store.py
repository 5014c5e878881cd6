"""Where a PostgreSQL journal is, and how it is created: by numbered SQL files, each applied once and by one worker."""

from __future__ import annotations

import importlib.resources
import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal.postgres.connections import SCHEMA_NAME, PostgresReader, connect
from crucible_worker.journal.postgres.dialect import Dialect
from crucible_worker.journal.postgres.leases import Leases
from crucible_worker.journal.postgres.listening import PostgresGlance
from crucible_worker.journal.postgres.place import recognize
from crucible_worker.journal.postgres.sessions import LIVES, Session
from crucible_worker.journal.postgres.writing import PostgresWriting
from crucible_worker.journal.queries import Head, JournalDamaged, head
from crucible_worker.journal.store import Submit
from crucible_worker.journal.transaction import Transaction
from crucible_worker.journal.urls import without_password
from crucible_worker.util.background import Background
from crucible_worker.util.private_files import make_private_folder

__all__ = ["MIGRATE_WAIT", "PostgresStore", "newest_version", "prepare", "refuse_unfit", "refuse_unreadable"]

MIGRATE_WAIT: LiteralString = "60 s"
"""How long a worker waits for another one that creates or upgrades the journal."""
BEAT_SECONDS = 1.0
"""Seconds between two transactions of a worker that has nothing to write: they renew its lease."""

_MIGRATION_LOCK = 0x4A4F55524E414C
_OLDEST_SERVER = 130000
_NAME = re.compile(r"(\d{4})_\w+\.sql")
_UNENCODED = re.compile(r"\w+://[^@/?]*[@/][^?]*@")
"""A second @, or one after the host."""
_UNKNOWN_PARAMETER = re.compile(r'invalid URI query parameter: "(\w+)"')


class PostgresStore:
    """See `crucible_worker.journal.store.Store`."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, JournalDamaged)
    beat_seconds: float | None = BEAT_SECONDS

    def __init__(self, url: str, folder: Path, dialect: Dialect, log: Head) -> None:
        """See `prepare`."""
        self._url, self._dialect, self._log = url, dialect, log
        self.folder = folder
        self._session = Session(f"{socket.gethostname()} {os.getpid()}")

    def connect(self) -> PostgresReader:
        """Another connection that only reads."""
        return PostgresReader(connect(self._url), self._dialect)

    def writing(self) -> PostgresWriting:
        """The connection that writes."""
        return PostgresWriting(self._url, self._dialect, self._session)

    def glance(self, background: Background) -> PostgresGlance:
        """What the running event loop asks."""
        return PostgresGlance(self._url, self._log, background)

    def owners(self, kind: str, submit: Submit, read: Callable[..., Any]) -> Leases:
        """Owners of one kind of things."""
        return Leases(kind, self._session, submit, read)

    def leads(self, transaction: Transaction) -> bool:
        """Whether no older session lives."""
        sql = f"SELECT 1 FROM sessions WHERE session < ? AND {LIVES} LIMIT 1"
        return transaction.execute(sql, (self._session.token,)).fetchone() is None

    def is_lasting(self, error: Exception) -> bool:
        """Whether an error of a reader shows that the journal is damaged."""
        return isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted | JournalDamaged)

    def is_lost(self, error: Exception) -> bool:
        """Whether a reader's connection is of no use after an error."""
        return isinstance(error, psycopg.OperationalError)


def prepare(url: str, state_dir: Path) -> PostgresStore:
    """Create or upgrade the journal of a database, if that is needed; several workers may do so at once.

    Args:
        url: of the database, "postgresql://USER@HOST/DATABASE".
        state_dir: where this machine has a folder of the files that belong to the journal.

    Raises:
        FailedPrecondition: the database cannot be used, or its journal is of a newer version.
    """
    refuse_unreadable(url)
    privilege = ""
    try:
        with connect(url) as connection:
            privilege = _lacking_privilege(connection)
            connection.execute(f"SET lock_timeout = '{MIGRATE_WAIT}'")
            refuse_unfit(connection)
            _migrate(connection)
            recognize(connection, 0)
            dialect = Dialect.of(connection, SCHEMA_NAME)
            reader = PostgresReader(connection, dialect)
            log = head(reader)
        folder = state_dir / f"journal-{log.log_id}"
        make_private_folder(folder)
    except (psycopg.Error, OSError, JournalDamaged) as error:
        cure = privilege if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
        raise FailedPrecondition(
            f"--journal {without_password(url)} cannot be used: {str(error).strip()}{cure}",
            reason=Reason.JOURNAL_UNUSABLE,
        ) from error
    return PostgresStore(url, folder, dialect, log)


def refuse_unreadable(url: str) -> None:
    """Refuse a URL in which nobody can tell where the password ends: libpq would show parts of it as a host.

    Raises:
        FailedPrecondition: it has characters that need to be encoded; the message has nothing of the URL.
    """
    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        readable = False
        if _has_no_password(url) and (unknown := _UNKNOWN_PARAMETER.match(str(error))) is not None:
            raise FailedPrecondition(
                f"--journal has {unknown[1]!r}, which is no parameter of PostgreSQL's URLs, as sslmode is",
                reason=Reason.JOURNAL_UNUSABLE,
            ) from None
    else:
        readable = _UNENCODED.match(url) is None
    if not readable:
        raise FailedPrecondition(
            "--journal is not a URL that can be read: in a user's name or password, write %40 for @, %2F for /, "
            "%3A for :, %3F for ?, %26 for & and %25 for %",
            reason=Reason.JOURNAL_UNUSABLE,
        ) from None


def _has_no_password(url: str) -> bool:
    """Whether no part of a URL's parameters can be that of a password, however it is written."""
    return "@" not in url.partition("?")[2] and "password=" not in url


def _lacking_privilege(connection: psycopg.Connection[Any]) -> str:
    """What the database's owner has to run, if the user may not create the schema; empty if it may."""
    ((allowed,),) = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
    info = connection.info
    return "" if allowed else f'; its owner allows it by GRANT CREATE ON DATABASE "{info.dbname}" TO "{info.user}"'


def refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    """Refuse a database that can have no journal.

    Raises:
        FailedPrecondition: the server is too old, or its text is not UTF-8.
    """
    problem = ""
    if connection.info.server_version < _OLDEST_SERVER:
        problem = f"PostgreSQL {connection.info.server_version // 10000} is too old, 13 or newer is needed"
    elif (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        made = "CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0 makes one with it"
        problem = f"the database's encoding is {encoding}, not UTF8: {made}"
    if problem:
        raise FailedPrecondition(f"--journal cannot be used: {problem}", reason=Reason.JOURNAL_UNUSABLE)


def newest_version() -> int:
    """The version of the journals that this release writes."""
    return max(_migrations())


def _migrate(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA_NAME}.migrations",)).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA_NAME}")
            connection.execute("CREATE TABLE migrations (version BIGINT PRIMARY KEY, applied_ns BIGINT NOT NULL)")
        (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone() or (0,)
        files = _migrations()
        if version > max(files):
            raise FailedPrecondition(
                f"the journal is of version {version}, this worker writes {max(files)}: use a newer release, or "
                "another --journal",
                reason=Reason.JOURNAL_VERSION,
            )
        for number in sorted(files):
            if number > version:
                _apply(connection, number, files[number])
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))


def _apply(connection: psycopg.Connection[Any], number: int, sql: str) -> None:
    with connection.transaction():
        connection.execute(sql.encode())
        if number == 1:
            connection.execute("INSERT INTO head VALUES (1, %s, %s, 0, 1)", (uuid.uuid4().hex, time.time_ns()))
        connection.execute("INSERT INTO migrations VALUES (%s, %s)", (number, time.time_ns()))


def _migrations() -> dict[int, str]:
    folder = importlib.resources.files("crucible_worker.journal.postgres") / "migrations"
    found: dict[int, str] = {}
    for file in folder.iterdir():
        if (name := _NAME.fullmatch(file.name)) is not None:
            found[int(name[1])] = file.read_text(encoding="utf-8")
    return found
