"""The progress of evaluations for who watches: bars on a terminal, a line now and then without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from crucible_bridge.events import Event, EventKind

__all__ = ["LINE_SECONDS", "Show", "progress"]

LINE_SECONDS = 2.0
"""Between two lines on the way, where there is no terminal."""

Show = Callable[[str, Event], None]
"""Takes an evaluation's label and its next event."""

_ENDS = (EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION)


@contextlib.contextmanager
def progress(stream: TextIO, *, quiet: bool = False) -> Iterator[Show]:
    """Show events on a stream; where it is no terminal and `quiet` is wanted, nothing is written."""
    if stream.isatty():
        with _bars(stream) as show:
            yield show
    elif quiet:
        yield lambda _label, _event: None
    else:
        yield _Lines(stream).show


@contextlib.contextmanager
def _bars(stream: TextIO) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(file=stream)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(label: str, event: Event) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=None, note="")
            if not event.evaluator:  # an evaluator's total is not the bar's
                # None leaves a bar as it is.
                bars.update(
                    tasks[label], total=event.measurements.get("total"), completed=event.measurements.get("done")
                )
            if note := _note(event):
                bars.update(tasks[label], note=note)
            if event.kind is EventKind.EVALUATION_COMPLETE:
                task = next(task for task in bars.tasks if task.id == tasks[label])
                bars.update(tasks[label], completed=task.total)
            if event.kind in _ENDS:
                bars.stop_task(tasks[label])

        yield show


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = 0.0

    def show(self, label: str, event: Event) -> None:
        match event.kind:
            case EventKind.EVALUATION_PROGRESS:
                now = time.monotonic()
                if now - self._written < LINE_SECONDS:
                    return
                self._written = now
                text = f"{event.measurements.get('done', 0):g} of {event.measurements.get('total', 0):g} done"
            case EventKind.SAMPLE_COMPLETE | EventKind.EVALUATOR_START | EventKind.EVALUATION_COMPLETE:
                return
            case EventKind.EVALUATION_START | EventKind.EVALUATION_RESUME:
                total = event.measurements.get("total")  # absent until the samples are counted
                text = "" if total is None else f"{total:g} to do"
            case _:
                text = _note(event)
        if text:
            print(f"{label}: {text}", file=self._stream, flush=True)


def _note(event: Event) -> str:
    """What is worth saying of an event beside how far it got."""
    match event.kind:
        case EventKind.EVALUATOR_START:
            return f"{event.evaluator}: {event.measurements.get('total', 0):g} to do"
        case EventKind.EVALUATOR_COMPLETE:
            scored, n = event.measurements.get("n_scored", 0), event.measurements.get("n", 0)
            return f"{event.evaluator}: {scored:g} of {n:g} scored"
        case EventKind.EVALUATOR_EXCEPTION | EventKind.EVALUATION_EXCEPTION:
            reason = "" if event.problem is None else f": {event.problem.message}"
            return f"{event.evaluator or 'the evaluation'} failed{reason}"
        case EventKind.EVALUATION_INTERRUPT:
            return "interrupted"
        case EventKind.EVALUATION_STOP:
            return event.metadata.get("state", "over")
        case _:
            return ""
