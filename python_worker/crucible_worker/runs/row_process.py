"""Rows of a source from a child process that reads, converts and downloads.

What a library does there neither blocks the worker nor stays in its memory, and the child ends as soon as nobody wants
its rows. It reads a request, one line of JSON, from its input, and ends when that is closed; it writes a line for every
row, and one for its end or for what went wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from crucible_bridge.errors import BridgeError, Unavailable
from crucible_bridge.types import RowReader
from crucible_worker.backends.local.frames import error_from_map, error_to_map
from crucible_worker.runs.jsonl import Line, bounded_lines, line_of

__all__ = ["END", "ERROR", "FAULT", "ROW", "Fault", "answer", "rows_of", "without_tokens"]

ROW, FAULT, ERROR, END = b"r", b"m", b"e", b"."
"""What a line of the child begins with: a row, what is wrong with one, what went wrong, or the end; behind it JSON."""

_LOOK_SECONDS = 0.2
"""How often a silent child is asked whether anybody still waits for it."""


_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def without_tokens() -> dict[str, str]:
    """The environment of this process, for a child that has nobody to show its keys to."""
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
) -> Generator[Line, None, None]:
    """The rows that a child writes, in order, numbered from 1, malformed ones included. Close it: that ends the child.

    Args:
        module: what the child runs; it calls `answer`.
        request: what it is asked.
        rows: what reads its rows.
        environment: the child's.
        died: raised if it ends without an end.
        go_on: called while the child is silent; raises to have this given up.

    Raises:
        BridgeError: what the child says, or `rows` refuses the whole.
        MalformedLine: a row does not end.
    """
    with _child(module, environment) as (requests, replies):
        with contextlib.suppress(BrokenPipeError):  # it has died already: there is no answer, and that is told below
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
        yield from _lines(io.BufferedReader(_Patient(replies, go_on)), rows, died, go_on)
    rows.finish()


def answer(read: Callable[[dict[str, Any]], Iterable[Any]], plain: Callable[[object], object]) -> None:
    """Answer one request, in the child.

    Args:
        read: from the request to its rows, each a mapping or a Fault; may raise BridgeError.
        plain: what JSON can hold in place of a value that it cannot.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        for row in read(request):
            kind = FAULT if isinstance(row, Fault) else ROW
            replies.write(kind + _written(row, plain) + b"\n")
        replies.write(END + b"\n")
    except BridgeError as error:
        replies.write(ERROR + json.dumps(error_to_map(error)).encode() + b"\n")
    replies.flush()


def _written(row: object, plain: Callable[[object], object]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, default=plain).encode()
    except UnicodeEncodeError:  # half a surrogate pair: who reads the row refuses it by its escape
        return json.dumps(row, default=plain).encode()


def _end_with(requests: BinaryIO) -> None:
    """End when the worker closes the pipe or dies: nothing here is worth waiting for."""
    requests.read()
    os._exit(1)


@contextlib.contextmanager
def _child(module: str, environment: Mapping[str, str]) -> Iterator[tuple[io.BufferedWriter, int]]:
    """A child, its input and its output; it ends with its input, and at the end of this."""
    process = subprocess.Popen(
        # -P: the directory that the worker happens to stand in is no place to import from.
        [sys.executable, "-P", "-m", module],
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


def _lines(
    lines: io.BufferedReader, rows: RowReader, died: Unavailable, go_on: Callable[[], None]
) -> Generator[Line, None, None]:
    for number, raw in enumerate(bounded_lines(lines, go_on), start=1):
        if raw is None:
            yield line_of(number, None, rows)
        elif not raw.endswith(b"\n"):
            break
        elif raw.startswith(ROW):
            yield line_of(number, raw[1:], rows)
        elif raw.startswith(FAULT):
            yield Line(number=number, problem=json.loads(raw[1:]))
        elif raw.startswith(ERROR):
            raise error_from_map(json.loads(raw[1:]))
        elif raw == END + b"\n":
            return
        else:
            break
    raise died


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
