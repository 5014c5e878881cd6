"""Standard output that cannot be written to: told in a line, or in none where the reader has gone."""

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
    """A stream that keeps the error by which it could not be written to; all else is the stream's own."""

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
    """Say on stderr why standard output cannot be written to, and end with EXIT_FAILED; other errors pass.

    Of a closed pipe nothing is said, by the library of the command line: whoever closed it has read enough.
    """
    stream = sys.stdout
    if cast("TextIO | None", stream) is None:  # closed by whoever started the command: nothing is written
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
            # What its buffer still holds would be tried again, and complained of, as the interpreter ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
