"""The journal's SQL for PostgreSQL.

Statements are written in what SQLite and PostgreSQL share, but for three forms:

- `?` stands for a parameter: `%s`;
- `INSERT OR IGNORE INTO t ...`: `INSERT INTO t ... ON CONFLICT DO NOTHING`;
- `INSERT OR REPLACE INTO t ...`: `INSERT INTO t ... ON CONFLICT (key) DO UPDATE SET column = excluded.column, ...`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, cast

import psycopg
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.types.string import StrDumperUnknown

__all__ = ["SqlTranslator", "adapt"]

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
