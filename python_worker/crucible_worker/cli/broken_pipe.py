"""Standard output that cannot be written to: reported in one line, or not at all if the reader has closed it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

import typer

from crucible_worker.cli.options import EXIT_FAILED

__all__ = ["telling_lost_output"]


class _Watched:
    """A stream that stores the error of a failed write; it is otherwise the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._keeping():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._keeping():
            self._stream.flush()

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            raise


@contextlib.contextmanager
def telling_lost_output() -> Iterator[None]:
    """Report on stderr why standard output cannot be written to, and exit with EXIT_FAILED; other errors pass.

    The library of the command line ignores a closed pipe: its reader has read enough.
    """
    stream = sys.stdout
    if cast("TextIO | None", stream) is None:  # closed by the parent process: nothing is written
        yield
        return
    watched = _Watched(stream)
    sys.stdout = cast("TextIO", watched)
    try:
        yield
    except OSError as error:
        if error is not watched.failure:
            raise
        typer.echo(f"crucible-worker: cannot write to standard output: {error.strerror}", err=True)
        raise SystemExit(EXIT_FAILED) from None
    finally:
        sys.stdout = stream
        if watched.failure is not None:
            # The interpreter would try again to write the buffer at its end, and report the error.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
