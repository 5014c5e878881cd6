"""Progress of counted work: a bar on a terminal, a line now and then without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from crucible_worker.cli.progress import LINE_SECONDS

__all__ = ["Count", "counting"]

Count = Callable[[int, int], None]
"""Receives the number of finished items, and how much of the total that is."""


@contextlib.contextmanager
def counting(stream: TextIO, label: str, noun: str, total: int | None, *, quiet: bool = False) -> Iterator[Count]:
    """Show progress on a stream; if it is not a terminal and `quiet` is set, nothing is written.

    Args:
        stream: stderr.
        label: what is done ("grading").
        noun: what is counted ("records").
        total: what a full bar stands for; None if unknown.
        quiet: write no lines if there is no terminal.
    """
    if stream.isatty():
        with _bar(stream, label, noun, total) as count:
            yield count
    elif quiet:
        yield lambda _done, _filled: None
    else:
        yield _lines(stream, label, noun, total)


@contextlib.contextmanager
def _bar(stream: TextIO, label: str, noun: str, total: int | None) -> Iterator[Count]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(label), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(file=stream)) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, filled: bar.update(task, completed=filled, note=f"{done:,} {noun}")


def _lines(stream: TextIO, label: str, noun: str, total: int | None) -> Count:
    written = time.monotonic()

    def show(done: int, filled: int) -> None:
        nonlocal written
        now = time.monotonic()
        if now - written < LINE_SECONDS:
            return
        written = now
        share = f", {filled / total:.0%}" if total else ""
        print(f"{label}: {done:,} {noun}{share}", file=stream, flush=True)

    return show
