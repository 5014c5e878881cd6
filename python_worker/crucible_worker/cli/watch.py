"""`crucible-worker watch`: what runs now, until it has ended."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from crucible_worker.cli.options import EXIT_FAILED, Config, StateDir
from crucible_worker.cli.reading import Address, read_or_exit
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.reports.metric_keys import Infos

__all__ = ["watch"]

PAUSE_SECONDS = 0.5
"""Between two looks; the journal of another process has no other news for a command."""

_Id = Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this evaluation. [default: all that run]")]


def watch(
    evaluation_id: _Id = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
) -> None:
    """Watch evaluations that run: progress, rate and time left, then their results. Ends when they have ended.

    On a terminal each evaluation has a bar; elsewhere each change is a line. The exit code is 0 if all have completed.

    Example: crucible-worker watch nightly-320 --state-dir ./journal
    """

    async def follow(bridge: Bridge) -> bool:
        infos = {info.kind: info for info in await bridge.evaluation.list_evaluators()}
        shown = _Bars(infos) if sys.stdout.isatty() else _Lines(infos)
        with shown:
            return await _follow(bridge, evaluation_id, shown)

    if not read_or_exit(follow, config, state_dir, address, token_file, tls_ca):
        raise typer.Exit(EXIT_FAILED)


class _Shown(Protocol):
    """Where progress is shown."""

    def update(self, evaluation: Evaluation) -> None:
        """Show how an evaluation stands."""
        ...


async def _follow(bridge: Bridge, evaluation_id: str | None, shown: _Shown) -> bool:
    """Follow one evaluation, or all that are at work, to their ends; whether all have completed."""
    from crucible_bridge.types import EvaluationState

    at_work = (EvaluationState.QUEUED, EvaluationState.RUNNING)
    followed: dict[str, Evaluation] = {}
    while True:
        if evaluation_id is not None:
            found = [await bridge.evaluation.get_evaluation(evaluation_id)]
        else:
            found = [one async for one in bridge.evaluation.all_evaluations(states=at_work)]
            gone = followed.keys() - {one.evaluation_id for one in found}
            found += [
                await bridge.evaluation.get_evaluation(one) for one in sorted(gone) if followed[one].state in at_work
            ]
        for evaluation in found:
            followed[evaluation.evaluation_id] = evaluation
            shown.update(evaluation)
        if not followed:
            typer.echo("nothing runs")
        if not any(one.state in at_work for one in followed.values()):
            return all(one.state is EvaluationState.COMPLETED for one in followed.values())
        await asyncio.sleep(PAUSE_SECONDS)


class _Rate:
    """Samples a second since the first look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def of(self, done: int) -> float | None:
        """The rate, once there is one."""
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        began, before = self._first
        return (done - before) / (now - began) if done > before and now > began else None


def _words(evaluation: Evaluation, rate: float | None) -> str:
    words = [f"{evaluation.done:,} of {evaluation.total:,}" if evaluation.total else "reading the data set"]
    if rate is not None:
        words.append(f"{rate:,.1f} a second")
        words.append(_time((evaluation.total - evaluation.done) / rate) + " left")
    return ", ".join(words)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _results(evaluation: Evaluation, infos: Infos) -> Iterable[str]:
    from crucible_worker.reports.sentences import evaluator_sentences

    problem = evaluation.problem
    yield f"{evaluation.evaluation_id}: {evaluation.state.value}" + (
        "" if problem is None else f", {problem.reason}: {problem.message}"
    )
    for sentence in evaluator_sentences(evaluation, infos):
        yield f"  {sentence}"


class _Lines:
    """A line for each change, for logs and pipes."""

    def __init__(self, infos: Infos) -> None:
        self._infos = infos
        self._said: dict[str, tuple[str, int]] = {}
        self._rates: dict[str, _Rate] = {}

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to undo."""

    def update(self, evaluation: Evaluation) -> None:
        identity, state = evaluation.evaluation_id, evaluation.state.value
        said = (state, evaluation.done)
        if self._said.get(identity) == said:
            return
        self._said[identity] = said
        if state in ("queued", "running"):
            rate = self._rates.setdefault(identity, _Rate()).of(evaluation.done)
            typer.echo(f"{identity}: {state}, {_words(evaluation, rate)}")
        else:
            for line in _results(evaluation, self._infos):
                typer.echo(line)


class _Bars:
    """A bar for each evaluation, on a terminal."""

    def __init__(self, infos: Infos) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._infos = infos
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(file=sys.stdout),
        )
        self._bars: dict[str, object] = {}
        self._rates: dict[str, _Rate] = {}
        self._ended: set[str] = set()

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, evaluation: Evaluation) -> None:
        identity, state = evaluation.evaluation_id, evaluation.state.value
        if identity in self._ended:
            return
        if identity not in self._bars:
            self._bars[identity] = self._progress.add_task(identity, total=None, words="")
        rate = self._rates.setdefault(identity, _Rate()).of(evaluation.done)
        at_work = state in ("queued", "running")
        self._progress.update(
            self._bars[identity],  # pyright: ignore[reportArgumentType] - rich's own number
            completed=evaluation.done,
            total=evaluation.total or None,
            words=f"{state}, {_words(evaluation, rate)}" if at_work else state,
        )
        if not at_work:
            self._ended.add(identity)
            for line in _results(evaluation, self._infos):
                self._progress.console.print(line, markup=False, highlight=False)
