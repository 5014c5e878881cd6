"""Connections to the journal's database, for reading and for writing, and its SQL in the form of PostgreSQL."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.postgres import types
from psycopg.types.string import StrDumperUnknown

from crucible_worker.journal.queries import StatementResult

__all__ = [
    "LEASE",
    "LOCK_WAIT",
    "PATIENCE_SECONDS",
    "RESTART_LEASE",
    "SCHEMA_NAME",
    "SETTINGS",
    "PostgresReader",
    "SqlTranslator",
    "WriterStatements",
    "adapt",
    "connect",
    "is_lost",
    "parameters",
]

# The journal's SQL for PostgreSQL.
#
# Statements are written in what SQLite and PostgreSQL share, but for three forms:
#
# - `?` stands for a parameter: `%s`;
# - `INSERT OR IGNORE INTO t ...`: `INSERT INTO t ... ON CONFLICT DO NOTHING`;
# - `INSERT OR REPLACE INTO t ...`: `INSERT INTO t ... ON CONFLICT (key) DO UPDATE SET column = excluded.column, ...`.

_REPLACE = re.compile(r"INSERT OR REPLACE INTO (\w+)")
_IGNORE = "INSERT OR IGNORE INTO"


class SqlTranslator:
    """Translates statements; it knows the tables of one journal. Safe to use from several threads."""

    def __init__(self, tables: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        """For tables by name: the columns of each, and those of its primary key."""
        self._tables = tables
        self._known: dict[str, LiteralString] = {}

    @classmethod
    def of(cls, connection: psycopg.Connection[Any], schema: str) -> SqlTranslator:
        """For the tables of a schema."""
        rows = connection.execute(
            """SELECT relation.relname, attname, coalesce(attnum = ANY (indkey), false)
               FROM pg_class AS relation JOIN pg_attribute ON attrelid = relation.oid AND attnum > 0
               LEFT JOIN pg_index ON indrelid = relation.oid AND indisprimary
               WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND NOT attisdropped ORDER BY attnum""",
            (schema,),
        )
        tables: dict[str, tuple[list[str], list[str]]] = {}
        for table, column, in_key in rows.fetchall():
            columns, key = tables.setdefault(table, ([], []))
            columns.append(column)
            if in_key:
                key.append(column)
        return cls(tables)

    def translated(self, sql: str) -> LiteralString:
        """A statement for PostgreSQL."""
        found = self._known.get(sql)
        if found is None:
            found = self._known[sql] = cast(LiteralString, self._translate(sql))
        return found

    def _translate(self, sql: str) -> str:
        text = sql.replace("%", "%%").replace("?", "%s")
        if _IGNORE in text:
            return text.replace(_IGNORE, "INSERT INTO") + " ON CONFLICT DO NOTHING"
        replaced = _REPLACE.search(text)
        if replaced is None:
            return text
        columns, key = self._tables[replaced[1]]
        changes = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
        return (
            f"{_REPLACE.sub('INSERT INTO ' + replaced[1], text)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
        )


class _BoolDumper(Dumper):
    """Flags are numbers in the journal, as SQLite has no truth values."""

    oid = types["int8"].oid

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _TextDumper(StrDumperUnknown):
    """Text without NUL, which no text in PostgreSQL can hold: U+2400 shows where one was."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\u2400") if "\0" in obj else obj)


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Make a connection take the values that the journal's statements have."""
    connection.adapters.register_dumper(bool, _BoolDumper)
    connection.adapters.register_dumper(str, _TextDumper)


SCHEMA_NAME: LiteralString = "crucible_bridge"
"""The schema of the journal's tables: one journal in a database."""
CONNECT_SECONDS = 5
"""Seconds after which a try to connect is given up."""
PATIENCE_SECONDS = 30.0
"""Seconds for which reads and writes wait for a database that is away, before the journal is unreadable, unwritable."""
UNSENT_SECONDS = 10.0
"""Seconds after which a network that takes nothing any more counts as gone."""
LEASE: LiteralString = "5 s"
"""How long a worker owns what it owns since its last transaction; a transaction that it leaves open ends then, too."""
RESTART_LEASE: LiteralString = "35 s"
"""How long it does so since the server's start: as long as it waits for the server, which may recover first."""
LOCK_WAIT: LiteralString = "20 s"
"""How long a transaction waits for those of other workers, of which one may have been stopped."""
ROWS_AHEAD = 100
"""Rows that are fetched together while a large result is read."""

SETTINGS: LiteralString = f"""SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
    ('search_path', '{SCHEMA_NAME}'), ('client_encoding', 'UTF8'), ('default_transaction_isolation', 'read committed'),
    ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0')) AS session (name, wanted) USING (name)"""
"""Sets what the journal relies on for a connection, whatever its user or its database has; old servers know not all."""

_LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)


def parameters(url: str) -> Mapping[str, Any]:
    """Parameters of every connection to a database, beside those that its URL has."""
    more = {
        "application_name": "crucible-worker",
        "connect_timeout": CONNECT_SECONDS,
        "target_session_attrs": "read-write",  # the primary, of all hosts that the URL names
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        # Keepalives do not notice that the network is gone while something is sent.
        "tcp_user_timeout": int(UNSENT_SECONDS * 1000),
    }
    given = conninfo_to_dict(url)
    return {name: value for name, value in more.items() if name not in given}


def connect(url: str) -> psycopg.Connection[Any]:
    """Open one connection, in autocommit: transactions are begun and ended explicitly."""
    connection = psycopg.connect(url, autocommit=True, **parameters(url))
    try:
        adapt(connection)
        connection.execute(SETTINGS)
    except psycopg.Error:
        connection.close()
        raise
    return connection


def is_lost(error: Exception, connection: psycopg.Connection[Any] | None) -> bool:
    """Whether an error is that of a connection that is of no use any more."""
    return isinstance(error, _LOST) or connection is None or connection.closed


class WriterStatements:
    """Runs the statements of a transaction of the writer."""

    def __init__(self, connection: psycopg.Connection[Any], dialect: SqlTranslator) -> None:
        """For a connection."""
        self._connection, self._dialect = connection, dialect
        self.changes = 0
        """Statements so far that may have changed something."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Run one statement."""
        if not sql.startswith(("SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK")):
            self.changes += 1
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(self._dialect.translated(sql), parameters)


class PostgresReader:
    """A connection that only reads."""

    def __init__(self, connection: psycopg.Connection[Any], dialect: SqlTranslator) -> None:
        """For a connection, which `close` closes."""
        self._connection, self._dialect = connection, dialect
        self._cursors = 0

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> StatementResult:
        """Run one statement, when its rows are asked for."""
        return _Selected(self, self._dialect.translated(sql), parameters)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads of the block are of one moment of the journal, whatever is written meanwhile."""
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with self._ending():
                self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def at_once(self, sql: Any, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
        """Run a statement whose rows fit into memory."""
        return self._connection.cursor(binary=True).execute(sql, parameters)

    def in_turns(self, sql: Any, parameters: Sequence[Any]) -> Generator[Any]:
        """Run a statement, and fetch its rows as they are asked for."""
        self._cursors += 1
        cursor = self._connection.cursor(f"rows_{self._cursors}", binary=True)
        cursor.itersize = ROWS_AHEAD
        with self._transaction():
            try:
                cursor.execute(sql, parameters)
                for row in cursor:  # noqa: UP028 - `yield from` would close the cursor where a reader stops
                    yield row
            finally:
                with self._ending():
                    cursor.close()
                cursor.close()  # the first try of a lost connection leaves it open

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction, as cursors of the server have to be in one."""
        if self._connection.info.transaction_status != pq.TransactionStatus.IDLE:
            yield
            return
        self._connection.execute("BEGIN READ ONLY")
        try:
            yield
        finally:
            with self._ending():
                self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Ends something that only read: a connection that is lost has nothing left to end."""
        try:
            yield
        except psycopg.OperationalError as error:
            if not is_lost(error, self._connection):
                raise


class _Selected:
    """The rows of a statement: fetched at once, or in turns if somebody goes over them."""

    def __init__(self, reader: PostgresReader, sql: Any, parameters: Sequence[Any]) -> None:
        self._reader, self._sql, self._parameters = reader, sql, parameters
        self._cursor: psycopg.Cursor[Any] | None = None

    def _found(self) -> psycopg.Cursor[Any]:
        if self._cursor is None:
            self._cursor = self._reader.at_once(self._sql, self._parameters)
        return self._cursor

    @property
    def rowcount(self) -> int:
        return self._found().rowcount

    def fetchone(self) -> Any:
        return self._found().fetchone()

    def fetchall(self) -> list[Any]:
        return self._found().fetchall()

    def __iter__(self) -> Iterator[Any]:
        if self._cursor is not None:
            return iter(self._cursor)
        return self._reader.in_turns(self._sql, self._parameters)
