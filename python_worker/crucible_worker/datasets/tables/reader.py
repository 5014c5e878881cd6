"""The child process that reads a CSV or Parquet file: `python -m crucible_worker.datasets.tables.reader`."""

from __future__ import annotations

import datetime
import decimal
import resource
import uuid
from collections.abc import Iterator
from typing import Any

from crucible_bridge.errors import InvalidField, PermissionDenied
from crucible_bridge.reasons import Reason
from crucible_worker.children.bounds import limit
from crucible_worker.datasets.row_process import Fault, answer
from crucible_worker.datasets.tables.csv_rows import csv_rows
from crucible_worker.datasets.tables.loading import FIELD
from crucible_worker.util.faults import shortage

__all__ = ["MAX_MEMORY_BYTES", "main", "plain", "rows"]

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
    raise InvalidField(f"{FIELD}.columns", f"names a column of type {type(value).__name__}, which has no text form")


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
        raise PermissionDenied(f"cannot be read: {error.strerror}", reason=Reason.UNREADABLE, field=FIELD) from error
    except MemoryError as error:
        raise _malformed(f"takes more than {MAX_MEMORY_BYTES:,} bytes of memory to be read") from error


def _malformed(problem: str) -> InvalidField:
    return InvalidField(FIELD, problem[:300], reason=Reason.MALFORMED_FILE)


if __name__ == "__main__":
    main()
