"""Progress for who watches: lines where there is no terminal, nothing where nothing is wanted."""

import io
import time
import types

import pytest

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import Problem
from crucible_worker.cli import progress as module
from crucible_worker.cli.progress import Pace, progress
from crucible_worker.engine.phases import Phase

START = Event(kind=EventKind.EVALUATION_START, measurements={"total": 20, "done": 0})
HALF = Event(kind=EventKind.EVALUATION_PROGRESS, measurements={"total": 20, "done": 10})
SAMPLE = Event(kind=EventKind.SAMPLE_COMPLETE, evaluator="nll")
NLL_START = Event(kind=EventKind.EVALUATOR_START, evaluator="nll", measurements={"total": 7})
NLL = Event(kind=EventKind.EVALUATOR_COMPLETE, evaluator="nll", measurements={"nll": 0.5, "n": 20, "n_scored": 19})
COMPLETE = Event(kind=EventKind.EVALUATION_COMPLETE, measurements={"nll": 0.5, "sample_count": 20})
STOP = Event(kind=EventKind.EVALUATION_STOP, metadata={"state": "completed"})
FAILED = Event(kind=EventKind.EVALUATION_EXCEPTION, problem=Problem(reason="X", message="no evaluator finished"))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(stream: io.StringIO, *events: Event, quiet: bool = False) -> str:
    with progress(stream, quiet=quiet) as show:
        for event in events:
            show("step 180", event)
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines():
    """A log gets what began, how far it is, and how it ended; no sample and no control character."""
    text = _shown(io.StringIO(), START, NLL_START, SAMPLE, HALF, SAMPLE, NLL, COMPLETE, STOP)

    assert text.splitlines() == [
        "step 180: 20 to do",
        "step 180: 10 of 20 done",
        "step 180: nll: 19 of 20 scored",
        "step 180: completed",
    ]


QUESTIONS = Event(
    kind=EventKind.EVALUATION_PROGRESS,
    measurements={"total": 2, "done": 1, "questions_done": 1_234, "questions_total": 12_345_678},
)


def test_questions_of_tasks_are_shown():
    """A task is one sample for hours: its questions show that it gets further, in a line and beside a bar."""
    assert _shown(io.StringIO(), QUESTIONS) == "step 180: 1 of 2 done, 1,234 of 12,345,678 questions\n"
    text = _shown(_Terminal(), START, QUESTIONS)
    assert "1/2" in text
    assert "1,234 of 12,345,678 questions" in text


def test_lines_on_the_way_come_now_and_then(monkeypatch: pytest.MonkeyPatch):
    """Four progress events a second do not become four lines a second."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    stream = io.StringIO()

    with progress(stream) as show:
        for clock.now in (100.0, 100.0 + module.LINE_SECONDS / 2, 100.0 + module.LINE_SECONDS):
            show("step 180", HALF)
    text = stream.getvalue()

    assert text.count("10 of 20 done") == 2


def test_a_failure_says_why():
    """The last line of an evaluation that failed has its reason."""
    assert _shown(io.StringIO(), FAILED) == "step 180: the evaluation failed: no evaluator finished\n"


def test_quiet_writes_nothing():
    """Who reads JSON gets nothing else."""
    assert _shown(io.StringIO(), START, HALF, STOP, quiet=True) == ""


def test_on_a_terminal_there_is_a_bar():
    """A bar per evaluation fills up to its end."""
    text = _shown(_Terminal(), START, NLL_START, HALF, NLL, COMPLETE, STOP)

    assert "step 180" in text
    assert "20/20" in text
    assert "completed" in text


def test_the_bar_keeps_the_evaluations_total():
    """An evaluator's total is neither the bar's nor shown next to it: the bar counts all evaluators."""
    text = _shown(_Terminal(), START, HALF, NLL_START)

    assert "10/20" in text
    assert "to do" not in text
    assert "/7" not in text


def test_a_narrow_terminal_keeps_the_counts_whole(monkeypatch: pytest.MonkeyPatch):
    """On 80 columns the label is folded rather than the counts, the rate and the time left cut."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = _Terminal()

    with progress(stream) as show:
        show("a label that is as long as the reference of a model with options", START)
        show("a label that is as long as the reference of a model with options", HALF)
        painted = _painted(stream, "10/20")

    assert "…" not in painted


def test_a_bar_is_there_at_once_with_its_phase():
    """Before any event, while a model is loaded, it says what is done; how far it is takes the phase's place."""
    stream = _Terminal()

    with progress(stream) as show:
        show.phase("step 180", "resuming: preparing the model", done=7, total=20)
        before = _painted(stream, "preparing the model")
        show("step 180", START)
        show("step 180", HALF)
        after = _painted(stream, "10/20")

    assert "step 180" in before
    assert "7/20" in before
    assert "preparing the model" not in after


def _painted(stream: io.StringIO, awaited: str) -> str:
    """The last lines painted that hold a text; a bar is painted some times a second."""
    while awaited not in stream.getvalue():
        time.sleep(0.01)
    return next(line for line in reversed(stream.getvalue().splitlines()) if awaited in line)


def test_lines_name_the_phase_the_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch):
    """A phase that lasts has a line; what is done per sample stands in the lines with counts."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(module, "Pace", lambda: Pace(lambda: clock.now))
    stream = io.StringIO()

    def progressed(done: int) -> Event:
        return Event(kind=EventKind.EVALUATION_PROGRESS, measurements={"total": 20, "done": done})

    with progress(stream) as show:
        for clock.now in (100.0, 101.0, 102.0, 103.0):
            show.phase("a", Phase.READING)
        for clock.now in (104.0, 105.0, 106.5, 108.0):
            show.phase("a", Phase.LOADING)
        for clock.now, done in ((110.0, 0), (112.0, 4), (114.0, 8)):
            show.phase("a", Phase.ASKING)
            show("a", progressed(done))
        clock.now = 116.0
        show.phase("a", Phase.GRADING)
        show("a", progressed(14))

    assert stream.getvalue().splitlines() == [
        "a: reading data",
        "a: preparing the model",
        "a: asking, 0 of 20 done",
        "a: asking, 4 of 20 done, 2.0 a second, 8 s left",
        "a: asking, 8 of 20 done, 2.0 a second, 6 s left",
        "a: grading, 14 of 20 done, 2.3 a second, 3 s left",
    ]


def test_a_bar_names_the_phase_the_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch):
    """Next to the counts; markup of an answer is text."""
    paces = {"now": 100.0}
    monkeypatch.setattr(module, "Pace", lambda: Pace(lambda: paces["now"]))
    stream = _Terminal()

    with progress(stream) as show:
        show("[bold]a", START)
        paces["now"] += 2
        show("[bold]a", HALF)
        show.phase("[bold]a", Phase.ASKING)
        painted = _painted(stream, "asking")

    assert "[bold]a" in painted
    assert "5.0 a second, 2 s left" in painted


@pytest.mark.parametrize("stream", [io.StringIO, _Terminal])
def test_the_time_of_an_outage_is_not_in_the_rate(monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]):
    """Ten minutes in which nothing could be done do not make an hour of what is left."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(module, "Pace", lambda: Pace(lambda: clock.now))
    written = stream()

    def at(now: float, done: int) -> None:
        clock.now = now
        show("a", Event(kind=EventKind.EVALUATION_PROGRESS, measurements={"total": 20, "done": done}))

    with progress(written) as show:
        at(100, 0)
        at(102, 4)
        show("a", Event(kind=EventKind.EVALUATION_PAUSED, metadata={"reason": "server lab since 22:57"}))
        clock.now = 702
        show("a", Event(kind=EventKind.EVALUATION_RESUMED, metadata={"reason": "server lab since 22:57"}))
        at(703, 4)
        at(705, 8)
        painted = _painted(written, "8/20") if isinstance(written, _Terminal) else written.getvalue().splitlines()[-1]

    assert "2.0 a second, 6 s left" in painted


def test_without_a_terminal_a_resumed_evaluation_has_a_line_at_once():
    """Its next event may be a minute away; the first phase of one that begins is soon over."""
    stream = io.StringIO()

    with progress(stream) as show:
        show.phase("step 180", Phase.READING)
        show.phase("step 180", "resuming: preparing the model", done=7, total=20)

    assert stream.getvalue() == "step 180: resuming: preparing the model, 7 of 20 done\n"


def test_quiet_has_no_phases():
    """Who reads JSON gets nothing else."""
    stream = io.StringIO()

    with progress(stream, quiet=True) as show:
        show.phase("step 180", "resuming", done=7, total=20)

    assert stream.getvalue() == ""
