"""Rows of a CSV or Parquet file, from a child process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Generator
from pathlib import Path

from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import FileDataset, FileFormat, RowReader
from crucible_worker.datasets.jsonl import JsonLine
from crucible_worker.datasets.row_process import rows_of, without_tokens

__all__ = ["FIELD", "read_table"]

FIELD = "dataset.file"
"""Where a request names a file."""

_NEEDED = "pyarrow"
_READER = "crucible_worker.datasets.tables.reader"
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""The library's other allocators reserve more than they use, and the child's memory is bounded."""


def read_table(
    path: Path, source: FileDataset, rows: RowReader, go_on: Callable[[], None]
) -> Generator[JsonLine, None, None]:
    """The rows of a file, in order, numbered from 1, malformed ones included. Closing it ends the child.

    Args:
        path: the file.
        source: its format and its columns.
        rows: reads its rows.
        go_on: called while the child is silent; it raises to stop the reading.

    Raises:
        FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED).
        InvalidField: the file is not of its format (MALFORMED_FILE), or `rows` refuses the whole.
        Unavailable: the child has died (FILE_READER_DIED).
    """
    if source.format is FileFormat.PARQUET and importlib.util.find_spec(_NEEDED) is None:
        raise FailedPrecondition(
            f"needs {_NEEDED}, which is not installed: install crucible-bridge[datasets]",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=FIELD,
        )
    request = {"path": str(path), "format": source.format.value, "columns": dict(source.columns)}
    died = Unavailable("the process that reads files has died", reason=Reason.FILE_READER_DIED, field=FIELD)
    environment = {**without_tokens(), **_ENVIRONMENT}
    yield from rows_of(_READER, request, rows, environment=environment, died=died, go_on=go_on)
