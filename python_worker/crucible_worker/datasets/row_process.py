"""Rows of a data set of the hub or of a table from a child process that reads, converts and downloads.

A library there neither blocks the worker nor fills its memory, and the child ends as soon as its rows are not needed
any more. It receives one request and sends a frame for each row, and one for its end or for what went wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import FileDataset, FileFormat, HubDataset, RowReader
from crucible_bridge.types.columns import METADATA
from crucible_worker.children.frames import frame, receive
from crucible_worker.children.lifetime import begin
from crucible_worker.children.messages import error_from_map, error_to_map, pack, unpack
from crucible_worker.children.process import Process
from crucible_worker.datasets.jsonl import MAX_LINE_BYTES, JsonLine, line_of

__all__ = ["FILE_FIELD", "HUB_FIELD", "Fault", "answer", "read_rows", "read_table", "rows_of", "without_tokens"]


_ROW, _LONG, _FAULT, _ERROR, _END = b"r", b"l", b"m", b"e", b"."
"""First byte of a frame of the child: a row as JSON, a row that is too long, the fault of a row, the error that ended
the reading as JSON, or the end of the rows."""

_LOOK_SECONDS = 0.2
"""Seconds between two calls of `go_on` while the child is silent."""


_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def without_tokens() -> dict[str, str]:
    """The environment of this process, without tokens, for a child that needs none."""
    return {name: value for name, value in os.environ.items() if name not in _TOKENS}


class Fault(str):
    """What is wrong with a row, in place of the row."""


def rows_of(
    module: str,
    request: Mapping[str, Any],
    rows: RowReader,
    *,
    environment: Mapping[str, str],
    died: Unavailable,
    go_on: Callable[[], None],
) -> Generator[JsonLine, None, None]:
    """The rows that a child sends, in order, numbered from 1, malformed ones included. Closing it ends the child.

    Args:
        module: run by the child; it calls `answer`.
        request: sent to the child.
        rows: reads its rows.
        environment: the child's.
        died: raised if the child ends without an end frame.
        go_on: called while the child is silent and for every row; it raises to stop the reading.

    Raises:
        BridgeError: the child reports it, or `rows` refuses the whole.
    """
    process, end = Process.start(module, environment=environment, logs=True)
    try:
        with end:
            with contextlib.suppress(ConnectionError):  # it has died already, which is detected below
                end.sendall(pack(request))
            end.settimeout(_LOOK_SECONDS)
            yield from _lines(end, rows, died, go_on)
    finally:
        process.reap()
    rows.finish()


def answer(module: str, read: Callable[[dict[str, Any]], Iterable[Any]], plain: Callable[[object], object]) -> None:
    """Answer one request, in the child.

    Args:
        module: run by the child.
        read: returns the rows of the request, each a mapping or a Fault; may raise BridgeError.
        plain: replaces a value that JSON does not support.
    """
    _, end = begin(module, __doc__)
    request = receive(end)
    assert request is not None
    threading.Thread(target=_end_with, args=(end,), daemon=True).start()
    with end.makefile("wb") as replies:
        try:
            for row in read(unpack(request)):
                replies.write(frame(_row(row, plain)))
            replies.write(frame(_END))
        except BridgeError as error:
            replies.write(frame(_ERROR + json.dumps(error_to_map(error)).encode()))


def _row(row: Any, plain: Callable[[object], object]) -> bytes:
    text = _written(row, plain)
    if isinstance(row, Fault):
        return _FAULT + text
    return _ROW + text if len(text) <= MAX_LINE_BYTES else _LONG


def _written(row: object, plain: Callable[[object], object]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, default=plain).encode()
    except UnicodeEncodeError:  # half a surrogate pair: the reader of the row refuses its escape
        return json.dumps(row, default=plain).encode()


def _end_with(end: socket.socket) -> None:
    """End at once when the worker closes the socket or dies."""
    end.recv(1)
    os._exit(1)


def _lines(
    end: socket.socket, rows: RowReader, died: Unavailable, go_on: Callable[[], None]
) -> Generator[JsonLine, None, None]:
    number = 0
    while True:
        try:
            body = receive(end, idle=go_on)
        except ConnectionError:
            body = None
        kind, text = (body or b"")[:1], (body or b"")[1:]
        number += 1
        go_on()
        if kind in (_ROW, _LONG):
            yield line_of(number, text if kind == _ROW else None, rows)
        elif kind == _FAULT:
            yield JsonLine(number=number, problem=json.loads(text))
        elif kind == _ERROR:
            raise error_from_map(json.loads(text))
        elif kind == _END:
            return
        else:
            raise died


# Rows of a data set of the hub, in the form of a file's records, from a child process.

HUB_FIELD = "dataset.hub"
"""Where a request names a data set of the hub."""

_HUB_LIBRARY = "datasets"
_HUB_READER = "crucible_worker.datasets.hub.reader"
_HUB_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def read_rows(
    source: HubDataset, *, network: bool, limit: int | None, go_on: Callable[[], None]
) -> Generator[JsonLine, None, None]:
    """The rows of a data set, in order, numbered from 1, malformed ones included. Closing it ends the child.

    Args:
        source: which data set.
        network: whether the hub may be queried; otherwise, or if the environment sets HF_HUB_OFFLINE or
            HF_DATASETS_OFFLINE, only the cache is read.
        limit: number of rows; all if None.
        go_on: called while the child is silent; it raises to stop the reading.

    Raises:
        FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the data set cannot be read
            (HUB_DATASET_REFUSED).
        NotFound: there is no such data set, configuration or split (UNKNOWN_DATASET), or the cache does not have it
            (NOT_CACHED).
        InvalidField: a column does not exist (NO_SUCH_COLUMN), or the source does not say which one is the input or
            which configuration is meant.
        Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the child has died (HUB_READER_DIED).
    """
    if importlib.util.find_spec(_HUB_LIBRARY) is None:
        raise FailedPrecondition(
            f"needs {_HUB_LIBRARY}, which is not installed: install crucible-bridge[datasets]",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=HUB_FIELD,
        )
    request = {**dataclasses.asdict(source), "limit": limit}
    # The child selects the requested columns, so that it need not read the others, and names them by their keys.
    columns = {key: key for key in source.columns if not key.startswith(METADATA)}
    rows = RowReader(columns, field=HUB_FIELD, cure="name the columns, as in &input=question&target=answer")
    died = Unavailable(
        "the process that reads data sets of the hub has died", reason=Reason.HUB_READER_DIED, field=HUB_FIELD
    )
    yield from rows_of(_HUB_READER, request, rows, environment=_environment(network), died=died, go_on=go_on)


def _environment(network: bool) -> dict[str, str]:
    return {**os.environ, **_HUB_ENVIRONMENT} if network else {**without_tokens(), **_HUB_ENVIRONMENT, **_OFFLINE}


# Rows of a CSV or Parquet file, from a child process.

FILE_FIELD = "dataset.file"
"""Where a request names a file."""

_PARQUET_LIBRARY = "pyarrow"
_TABLE_READER = "crucible_worker.datasets.tables.reader"
_TABLE_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
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
    if source.format is FileFormat.PARQUET and importlib.util.find_spec(_PARQUET_LIBRARY) is None:
        raise FailedPrecondition(
            f"needs {_PARQUET_LIBRARY}, which is not installed: install crucible-bridge[datasets]",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=FILE_FIELD,
        )
    request = {"path": str(path), "format": source.format.value, "columns": dict(source.columns)}
    died = Unavailable("the process that reads files has died", reason=Reason.FILE_READER_DIED, field=FILE_FIELD)
    environment = {**without_tokens(), **_TABLE_ENVIRONMENT}
    yield from rows_of(_TABLE_READER, request, rows, environment=environment, died=died, go_on=go_on)
