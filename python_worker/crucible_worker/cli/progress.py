"""The progress of evaluations and of counted work: bars on a terminal, a line now and then without one."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TextIO

from crucible_bridge.events import Event, EventKind
from crucible_worker.engine.phases import Phase

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["LINE_SECONDS", "Count", "Pace", "Show", "counting", "progress", "time_text"]


# How fast counted work is done, and how long the rest takes: "5.2 a second, 12 s left".

WINDOW_SECONDS = 10.0
"""The rate is that of so many last seconds."""
LOOK_SECONDS = 0.5
"""Counts within a shorter time replace each other."""


class Pace:
    """The rate of one count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the first count."""
        self._clock = clock
        self._looks: collections.deque[tuple[float, float]] = collections.deque()

    def forget(self) -> None:
        """Begin anew: nothing could be done for a while, which says nothing of the rate."""
        self._looks.clear()

    def of(self, done: float, total: float | None) -> str:
        """The rate and the time left, once something was done; empty before, and once all is done.

        Args:
            done: how much is done now.
            total: of how much; None if that is not known.
        """
        now, looks = self._clock(), self._looks
        if looks and done < looks[-1][1]:
            looks.clear()  # work began anew
        if len(looks) == 1 and done == looks[0][1]:
            looks.clear()  # nothing was counted yet: the model is being loaded, which says nothing of the rate
        if not looks or now - looks[-1][0] >= LOOK_SECONDS:
            looks.append((now, done))
        # The last look before the window stays: the window is the least time.
        while len(looks) > 2 and now - looks[1][0] >= WINDOW_SECONDS:
            looks.popleft()
        began, before = looks[0]
        if done <= before or now <= began or (total is not None and done >= total):
            return ""
        rate = (done - before) / (now - began)
        left = "" if total is None else f", {time_text((total - done) / rate)} left"
        return f"{rate:,.1f} a second{left}"


def time_text(seconds: float) -> str:
    """A time for people: "12 s", "3 min 5 s", "2 h 10 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


LINE_SECONDS = 2.0
"""Seconds between two lines if there is no terminal."""


class Show(Protocol):
    """Shows evaluations by their labels."""

    def __call__(self, label: str, event: Event) -> None:
        """Show an evaluation's next event."""
        ...

    def phase(self, label: str, text: str, *, done: float | None = None, total: float | None = None) -> None:
        """Show an evaluation's phase at once, until the next event with its progress."""
        ...

    def say(self, label: str, text: str) -> None:
        """Write a line that stays."""
        ...


WIDE_COLUMNS = 120
"""Terminals from this width show the time that has passed, and a wide bar."""
NARROW_BAR = 8
_BEGINS = (EventKind.EVALUATION_START, EventKind.EVALUATION_RESUME)
"""Events that leave the phase shown: the model is not yet loaded."""
_PAUSES = (EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED)
"""Events of a time in which nothing can be done."""
_WITH_COUNTS = (Phase.ASKING, Phase.GRADING, Phase.PAUSED)
"""Phases that lines with counts name."""
_ENDS = (EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION)


@dataclasses.dataclass(slots=True)
class _Began:
    """A phase, since when it lasts, and whether it has a line."""

    text: str
    since: float
    written: bool = False


@contextlib.contextmanager
def progress(stream: TextIO, *, quiet: bool = False, lines: bool = False) -> Iterator[Show]:
    """Show events on a stream; if it is not a terminal and `quiet` is set, nothing is written.

    Args:
        stream: where.
        quiet: write nothing if it is not a terminal.
        lines: write lines on a terminal too: of a run there may be hundreds of evaluations.
    """
    if stream.isatty() and not lines:
        with _bars(stream) as show:
            yield show
    elif quiet:
        yield _Nothing()
    else:
        yield _ProgressLines(stream)


@contextlib.contextmanager
def _bars(stream: TextIO) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(file=stream)
    wide = console.width >= WIDE_COLUMNS
    texts = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in _FIELDS]
    # Of what is too wide, the label is folded; the counts, the rate and the time left stay whole.
    description = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    counts = MofNCompleteColumn(table_column=Column(no_wrap=True))
    bar, elapsed = BarColumn(40 if wide else NARROW_BAR), (TimeElapsedColumn(),) if wide else ()
    with Progress(description, bar, counts, *elapsed, *texts, console=console) as bars:
        yield _EvaluationBars(bars)


_FIELDS = ("phase", "pace", "note")
"""Texts after a bar: what is done now, the rate and the time left, and the last event."""


class _EvaluationBars:
    """A bar for each evaluation."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}
        self._phases: set[str] = set()

    def __call__(self, label: str, event: Event) -> None:
        bars, task = self._bars, self._task(label)
        if event.kind in _PAUSES:
            self._paces[label].forget()
        if not event.evaluator:  # an evaluator's total is not the bar's
            done, total = event.measurements.get("done"), event.measurements.get("total")
            # None leaves a bar unchanged.
            bars.update(task, total=total, completed=done)
            if done is not None and total is not None:
                bars.update(task, pace=self._paces[label].of(done, total))
        if label in self._phases and event.kind not in _BEGINS:
            self._phases.remove(label)
            bars.update(task, phase="")
        # The bar has the counts of all evaluators.
        if (note := _note(event)) and event.kind is not EventKind.EVALUATOR_START:
            bars.update(task, note=note)
        if event.kind is EventKind.EVALUATION_COMPLETE:
            bars.update(task, completed=next(each for each in bars.tasks if each.id == task).total)
        if event.kind in _ENDS:
            bars.update(task, phase="", pace="")
            bars.stop_task(task)

    def phase(self, label: str, text: str, *, done: float | None = None, total: float | None = None) -> None:
        self._phases.add(label)
        self._bars.update(self._task(label), phase=text, total=total, completed=done)

    def say(self, label: str, text: str) -> None:
        self._bars.console.print(f"{label}: {text}", markup=False, highlight=False)

    def _task(self, label: str) -> TaskID:
        if label not in self._tasks:
            self._paces[label] = Pace()
            self._tasks[label] = self._bars.add_task(label, total=None, **dict.fromkeys(_FIELDS, ""))
        return self._tasks[label]


class _Nothing:
    """Writes nothing."""

    def __call__(self, label: str, event: Event) -> None:
        pass

    def phase(self, label: str, text: str, *, done: float | None = None, total: float | None = None) -> None:
        pass

    def say(self, label: str, text: str) -> None:
        pass


class _ProgressLines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = 0.0
        self._paces: dict[str, Pace] = {}
        self._phases: dict[str, _Began] = {}

    def __call__(self, label: str, event: Event) -> None:
        if event.kind in _PAUSES and label in self._paces:
            self._paces[label].forget()
        match event.kind:
            case EventKind.EVALUATION_PROGRESS:
                now = time.monotonic()
                if now - self._written < LINE_SECONDS:
                    return
                self._written = now
                text = ", ".join(filter(None, (self._phase(label), *self._counted(label, event), _note(event))))
            case EventKind.SAMPLE_COMPLETE | EventKind.EVALUATOR_START | EventKind.EVALUATION_COMPLETE:
                return
            case EventKind.EVALUATION_START | EventKind.EVALUATION_RESUME:
                total = event.measurements.get("total")  # absent until the samples are counted
                text = "" if total is None else f"{total:,.0f} to do"
            case _:
                text = _note(event)
        if text:
            self.say(label, text)

    def phase(self, label: str, text: str, *, done: float | None = None, total: float | None = None) -> None:
        now, began = time.monotonic(), self._phases.get(label)
        if began is None or began.text != text:
            began = self._phases[label] = _Began(text, now)
        if done is not None and total is not None:
            began.written = True
            self.say(label, f"{text}, {done:,.0f} of {total:,.0f} done")
        elif not began.written and now - began.since >= LINE_SECONDS and text not in _WITH_COUNTS:
            # A phase that is soon over needs no line.
            began.written = True
            self.say(label, text)

    def say(self, label: str, text: str) -> None:
        print(f"{label}: {text}", file=self._stream, flush=True)

    def _phase(self, label: str) -> str:
        began = self._phases.get(label)
        return began.text if began is not None and began.text in _WITH_COUNTS else ""

    def _counted(self, label: str, event: Event) -> tuple[str, str]:
        done, total = event.measurements.get("done", 0), event.measurements.get("total", 0)
        return f"{done:,.0f} of {total:,.0f} done", self._paces.setdefault(label, Pace()).of(done, total)


def _note(event: Event) -> str:
    """What to show of an event in addition to its progress."""
    match event.kind:
        case EventKind.EVALUATION_PROGRESS if "questions_total" in event.measurements:
            done, total = event.measurements["questions_done"], event.measurements["questions_total"]
            return f"{done:,.0f} of {total:,.0f} questions"
        case EventKind.EVALUATOR_START:
            return f"{event.evaluator}: {event.measurements.get('total', 0):,.0f} to do"
        case EventKind.EVALUATOR_COMPLETE:
            scored, n = event.measurements.get("n_scored", 0), event.measurements.get("n", 0)
            return f"{event.evaluator}: {scored:,.0f} of {n:,.0f} scored"
        case EventKind.EVALUATOR_EXCEPTION | EventKind.EVALUATION_EXCEPTION:
            reason = "" if event.problem is None else f": {event.problem.message}"
            return f"{event.evaluator or 'the evaluation'} failed{reason}"
        case EventKind.EVALUATION_INTERRUPT:
            return "interrupted"
        case EventKind.EVALUATION_PAUSED:
            return event.metadata.get("reason", "paused")
        case EventKind.EVALUATION_RESUMED:
            return event.metadata.get("reason", "resumed")
        case EventKind.EVALUATION_CONCURRENCY:
            return f"concurrency {event.measurements.get('concurrency', 0):,.0f}"
        case EventKind.EVALUATION_STOP:
            return event.metadata.get("state", "over")
        case _:
            return ""


# Counted work.

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
