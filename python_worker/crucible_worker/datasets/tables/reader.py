"""The child process that reads a CSV or Parquet file: `python -m crucible_worker.datasets.tables.reader`."""

from __future__ import annotations

import codecs
import csv
import datetime
import decimal
import json
import re
import resource
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crucible_bridge.errors import InvalidField, PermissionDenied, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.children.lifetime import limit
from crucible_worker.datasets.jsonl import MAX_LINE_BYTES, MalformedLine, object_of_pairs, text_file
from crucible_worker.datasets.row_process import FILE_FIELD, Fault, answer
from crucible_worker.util.error_reporter import shortage

__all__ = ["MAX_MEMORY_BYTES", "main", "plain", "rows"]

# Rows of comma-separated values; read only in the child process, as it sets the csv module's limit of a field.
#
# The first row names the columns, and decides whether commas, semicolons or tabs separate them. A cell is text; cells
# with lists and objects are JSON.

MAX_COLUMNS = 10_000
"""Most columns of a file."""

_QUOTED = re.compile(rb'"[^"]*"?')
_JSON = frozenset({"targets", "choices", "messages", "metadata"})
_OPTIONAL = frozenset({"target", "output", "answer", "completion", "index", "id"})
"""An empty cell of these columns means no value."""


class _TooLong(ValueError):
    """A row does not end."""


def csv_rows(path: str, columns: Mapping[str, str]) -> Iterator[dict[str, Any] | Fault]:
    """The rows of a file, by column.

    Args:
        path: the file.
        columns: column by key of a record; empty if the columns have the names of the keys.

    Raises:
        InvalidField: it has no columns, too many, or one twice, a row does not end, or its text cannot be read
            (MALFORMED_FILE).
        FailedPrecondition: see `text_files.text_file`.
        OSError: it cannot be read.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    with open(path, "rb") as opened, text_file(opened, FILE_FIELD) as file:
        records = _records(file, _separator(file.peek(), path))
        names = _header(next(records, None))
        cells = _Cells(columns)
        for record in records:
            if isinstance(record, Fault):
                yield record
            elif len(record) == 1 < len(names) and not record[0].strip():
                continue  # a line with white space alone is as good as an empty one
            elif len(record) != len(names):
                yield Fault(f"has {len(record):,} fields, and the first row names {len(names):,} columns")
            else:
                yield cells.row(names, record)


def _separator(head: bytes, path: str) -> str:
    """What separates the columns: a tab in files called .tsv, else what the first line has outside of quotes."""
    if any(suffix.lower() == ".tsv" for suffix in Path(path).suffixes[-2:]):
        return "\t"
    first = _QUOTED.sub(b"", head.partition(b"\n")[0])
    found = [separator for separator in ",;\t" if separator.encode() in first]
    if len(found) > 1 and found[0] != ",":
        problem = "has semicolons and tabs in its first row: put the names of its columns in double quotes"
        raise InvalidField(FILE_FIELD, problem, reason=Reason.MALFORMED_FILE)
    return found[0] if found else ","


def _records(file: BinaryIO, separator: str) -> Iterator[list[str] | Fault]:
    lines = _BoundedLines(file)
    reader = csv.reader(lines, strict=True, delimiter=separator)
    number = 0
    while True:
        number += 1
        lines.size = 0
        try:
            record = next(reader)
        except StopIteration:
            return
        except _TooLong:
            problem = f"has a row of more than {MAX_LINE_BYTES:,} bytes, row {number - 1}: is a quote left open?"
            raise InvalidField(FILE_FIELD, problem, reason=Reason.MALFORMED_FILE) from None
        except UnicodeDecodeError as error:
            yield Fault(f"is not UTF-8, at byte {error.start + 1} of line {lines.number}")
        except csv.Error as error:
            yield Fault(f"is not CSV: {error}, at line {lines.number}")
        else:
            if record:  # an empty line is no row
                yield record


def _header(record: list[str] | Fault | None) -> list[str]:
    """The names of the columns. A column without a name, such as an index, is left out."""
    if record is None:
        raise InvalidField(FILE_FIELD, "holds no sample", reason=Reason.EMPTY_DATASET)
    if isinstance(record, Fault):
        raise InvalidField(FILE_FIELD, f"has a first row that {record}", reason=Reason.MALFORMED_FILE)
    if len(record) > MAX_COLUMNS:
        problem = f"has {len(record):,} columns, at most {MAX_COLUMNS:,} are accepted"
        raise InvalidField(FILE_FIELD, problem, reason=Reason.MALFORMED_FILE)
    record = [name.strip() for name in record]
    seen: set[str] = set()
    for name in record:
        if name and name in seen:
            raise InvalidField(FILE_FIELD, f"has the column {clipped(name)} twice", reason=Reason.MALFORMED_FILE)
        seen.add(name)
    return record


class _BoundedLines(Iterator[str]):
    """Lines of a file, with a bound on those of one row."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = 0
        """Bytes since the beginning of the row."""
        self.number = 0
        """Number of lines read."""
        self._file = file

    def __next__(self) -> str:
        raw = self._file.readline(MAX_LINE_BYTES + 1 - self.size)
        if not raw:
            raise StopIteration
        self.size += len(raw)
        self.number += 1
        if self.size > MAX_LINE_BYTES:
            raise _TooLong
        if self.number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        return raw.decode()


class _Cells:
    """Converts the cells of columns to values."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        listed = {column.partition(".")[0] for key, column in columns.items() if key in _JSON or key == "labels"}
        self._json = _JSON | listed
        optional = {column for key, column in columns.items() if key in _OPTIONAL} if columns else _OPTIONAL
        self._optional = (optional | self._json) - {columns.get("input")}

    def row(self, names: Sequence[str], record: Sequence[str]) -> dict[str, Any] | Fault:
        """The values of a row, by column; one without a name is left out."""
        row: dict[str, Any] = {}
        for name, cell in zip(names, record):
            try:
                if name:
                    row[name] = self._value(name, cell)
            except MalformedLine as error:
                return Fault(f"{error} in a cell of the column {clipped(name)}")
        return row

    def _value(self, column: str, cell: str) -> Any:
        if not cell and column in self._optional:
            return None
        if column in self._json and cell.startswith(("[", "{")):
            try:
                return json.loads(cell, object_pairs_hook=object_of_pairs)
            except MalformedLine:
                raise
            except (ValueError, RecursionError):
                return cell  # if a list is needed, the reader of records refuses the text
        return cell


MAX_MEMORY_BYTES = 4 * 1024**3
"""Memory that reading may take: the pages of a small Parquet file can contain any number of equal values."""


def main() -> None:
    """Answer one request."""
    limit(resource.RLIMIT_DATA, MAX_MEMORY_BYTES)
    answer(__spec__.name, rows, plain)


def plain(value: object) -> object:
    """Dates, decimals and the like as text; bytes have no useful text form."""
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | decimal.Decimal | uuid.UUID):
        return str(value)
    raise InvalidField(
        f"{FILE_FIELD}.columns", f"names a column of type {type(value).__name__}, which has no text form"
    )


def rows(request: dict[str, Any]) -> Iterator[dict[str, Any] | Fault]:
    """The rows of a file, by column.

    Args:
        request: what `loading.read_table` writes.

    Raises:
        InvalidField: the file is not of its format, or too large for this process.
        PermissionDenied: it cannot be read.
    """
    try:
        if request["format"] == "csv":
            yield from csv_rows(request["path"], request["columns"])
        else:
            from crucible_worker.datasets.tables.parquet_rows import parquet_rows

            yield from parquet_rows(request["path"], request["columns"])
    except OSError as error:
        if error.errno is None:  # a fault in the file, detected by the library
            raise _malformed(f"is no readable Parquet file: {error}") from error
        if (lacking := shortage(error)) is not None:
            raise lacking from error
        raise PermissionDenied(
            f"cannot be read: {error.strerror}", reason=Reason.UNREADABLE, field=FILE_FIELD
        ) from error
    except MemoryError as error:
        raise _malformed(f"takes more than {MAX_MEMORY_BYTES:,} bytes of memory to be read") from error


def _malformed(problem: str) -> InvalidField:
    return InvalidField(FILE_FIELD, problem[:300], reason=Reason.MALFORMED_FILE)


if __name__ == "__main__":
    main()
