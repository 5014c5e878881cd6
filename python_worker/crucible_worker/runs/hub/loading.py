"""Rows of a hub's data set as the records of a file are, from a child process.

The child reads, converts and downloads: what the library does there neither blocks the worker nor stays in its memory,
and it ends as soon as nobody wants its rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Generator

from crucible_bridge.errors import FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubDataset
from crucible_worker.backends.local.frames import error_from_map
from crucible_worker.runs.jsonl import Line, MalformedLine, bounded_lines, line_of

__all__ = ["END", "ERROR", "FIELD", "ROW", "read_rows"]

FIELD = "dataset.hub"
"""Where a request names a data set of the hub."""
ROW, ERROR, END = b"r", b"e", b"."
"""What a line of the child begins with; behind it stands JSON, or nothing."""

_NEEDED = "datasets"
_READER = "crucible_worker.runs.hub.reader"
_LOOK_SECONDS = 0.2
"""How often a silent child is asked whether anybody still waits for it."""
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def read_rows(
    source: HubDataset, *, network: bool, limit: int | None, go_on: Callable[[], None]
) -> Generator[Line, None, None]:
    """The rows of a data set, in order, numbered from 1, malformed ones included. Close it: that ends the child.

    Args:
        source: which data set.
        network: whether the hub may be asked; else, and where the environment says HF_HUB_OFFLINE or
            HF_DATASETS_OFFLINE, only the cache is read.
        limit: rows that are wanted; all if None.
        go_on: called while the child is silent; raises to have this given up.

    Raises:
        FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the data set cannot be read
            (HUB_DATASET_REFUSED).
        NotFound: there is no such data set, configuration or split (UNKNOWN_DATASET), or the cache does not have it
            (NOT_CACHED).
        InvalidField: a column is not there (NO_SUCH_COLUMN), which one is the input or which configuration is meant is
            not told, or a row does not end (MALFORMED_LINE).
        Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the child has died (HUB_READER_DIED).
    """
    if importlib.util.find_spec(_NEEDED) is None:
        raise FailedPrecondition(
            f"needs {_NEEDED}, which is not installed: install crucible-bridge[datasets]",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=FIELD,
        )
    request = {**dataclasses.asdict(source), "limit": limit}
    with _child(network) as (requests, replies):
        with contextlib.suppress(BrokenPipeError):  # it has died already: there is no answer, and that is told below
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
        try:
            yield from _rows(io.BufferedReader(_Patient(replies, go_on)), go_on)
        except MalformedLine as error:
            raise InvalidField(FIELD, f"has a row that {error}", reason=Reason.MALFORMED_LINE) from error


@contextlib.contextmanager
def _child(network: bool) -> Generator[tuple[io.BufferedWriter, int], None, None]:
    """A child, its input and its output; it ends with its input, and at the end of this."""
    environment = {**os.environ, **_ENVIRONMENT}
    if not network:
        environment.update(_OFFLINE)
        for name in _TOKENS:
            environment.pop(name, None)
    process = subprocess.Popen(
        # -P: the directory that the worker happens to stand in is no place to import from.
        [sys.executable, "-P", "-m", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        process_group=0,
    )
    assert isinstance(process.stdin, io.BufferedWriter)
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout.fileno()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what was written last may still be pending
            process.stdin.close()


def _rows(lines: io.BufferedReader, go_on: Callable[[], None]) -> Generator[Line, None, None]:
    for number, raw in enumerate(bounded_lines(lines, go_on), start=1):
        if raw is None:
            yield line_of(number, None)
        elif raw.startswith(ROW) and raw.endswith(b"\n"):
            yield line_of(number, raw[1:])
        elif raw.startswith(ERROR) and raw.endswith(b"\n"):
            raise error_from_map(json.loads(raw[1:]))
        elif raw == END + b"\n":
            return
        else:
            break
    raise Unavailable(
        "the process that reads data sets of the hub has died", reason=Reason.HUB_READER_DIED, field=FIELD
    )


class _Patient(io.RawIOBase):
    """A pipe to read from, which asks while it waits whether to go on."""

    def __init__(self, pipe: int, go_on: Callable[[], None]) -> None:
        self._pipe, self._go_on = pipe, go_on
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read what is there, once something is."""
        while not self._poll.poll(_LOOK_SECONDS * 1000):
            self._go_on()
        data = os.read(self._pipe, len(buffer))
        buffer[: len(data)] = data
        return len(data)
