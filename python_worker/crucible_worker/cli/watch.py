"""`crucible-worker watch`: what runs now, until it has ended."""

from __future__ import annotations

import asyncio
import collections
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from crucible_worker.cli.options import EXIT_FAILED, Config, StateDir
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    Trust,
    evaluation_ids,
    read_or_exit,
)
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from rich.progress import TaskID

    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.cli.progress import Pace
    from crucible_worker.reports.metric_keys import Infos

__all__ = ["watch"]

PAUSE_SECONDS = 0.5
"""Between two looks; the journal of another process has no other news for a command."""

MAX_STREAMS = 16
"""Evaluations whose evaluators are shown as they end; a worker serves a limited number of streams."""

_AT_WORK = ("queued", "running")

_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every metric key of an evaluation that has ended.")]
_Id = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="Only this evaluation. [default: all that run]", autocompletion=evaluation_ids),
]


def watch(
    evaluation_id: _Id = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    verbose: _Verbose = False,
) -> None:
    """Watch evaluations that run: progress, rate and time left, and the result of each evaluator as it ends.

    Ends when all have ended. On a terminal each evaluation has a bar; elsewhere each change is a line. The exit code is
    0 if all have completed.

    Example: crucible-worker watch nightly-320 --state-dir ./journal
    """

    async def follow(bridge: Bridge) -> bool:
        infos = {info.kind: info for info in await bridge.evaluation.list_evaluators()}
        results = _Results(infos, verbose=verbose)
        with _WatchBars(results) if sys.stdout.isatty() else _WatchLines(results) as shown:
            async with _Settling(bridge, infos, shown) as settling:
                return await _follow(bridge, evaluation_id, shown, settling)

    if not read_or_exit(follow, config, state_dir, address, token_file, Trust(tls_ca, tls_name)):
        raise typer.Exit(EXIT_FAILED)


class _WatchedState(Protocol):
    """Where progress is shown."""

    def update(self, evaluation: Evaluation) -> None:
        """Show how an evaluation stands."""
        ...

    def settled(self, evaluation_id: str, sentence: str) -> None:
        """Show the result of one of its evaluators, which has ended."""
        ...


class _Settling:
    """Shows results of evaluators as they end, before their evaluations do."""

    def __init__(self, bridge: Bridge, infos: Infos, shown: _WatchedState) -> None:
        self._bridge, self._infos, self._shown = bridge, infos, shown
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> _Settling:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def follow(self, evaluation: Evaluation) -> None:
        """Follow an evaluation at work; of more than MAX_STREAMS, results are shown when they have ended."""
        identity = evaluation.evaluation_id
        if identity not in self._tasks and len(self._tasks) < MAX_STREAMS:
            self._tasks[identity] = asyncio.create_task(self._follow(evaluation))

    async def _follow(self, evaluation: Evaluation) -> None:
        from crucible_bridge.errors import BridgeError
        from crucible_worker.reports.metric_keys import event_sentence

        stream = self._bridge.evaluation.watch_evaluation(evaluation.evaluation_id, without_samples=True)
        try:
            async for event in stream:
                if sentence := event_sentence(evaluation, event, self._infos):
                    self._shown.settled(evaluation.evaluation_id, sentence)
        except BridgeError:
            # The next look at the evaluation reports what is wrong; its results are then shown at its end.
            return


async def _follow(bridge: Bridge, evaluation_id: str | None, shown: _WatchedState, settling: _Settling) -> bool:
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
            if evaluation.state in at_work:
                settling.follow(evaluation)
        if not followed:
            typer.echo("nothing runs")
        if not any(one.state in at_work for one in followed.values()):
            return all(one.state is EvaluationState.COMPLETED for one in followed.values())
        await asyncio.sleep(PAUSE_SECONDS)


def _state(evaluation: Evaluation) -> str:
    from crucible_worker.reports.facts import state_text

    return state_text(evaluation)


def _words(evaluation: Evaluation, pace: Pace) -> str:
    if not evaluation.total:
        return "reading the data set"
    counts = f"{evaluation.done:,} of {evaluation.total:,} results"
    if evaluation.paused or evaluation.waiting_for:
        pace.forget()
    return ", ".join(filter(None, (counts, pace.of(evaluation.done, evaluation.total))))


class _Results:
    """What was said of results so far, so that it is said once."""

    def __init__(self, infos: Infos, *, verbose: bool) -> None:
        self._infos, self._verbose = infos, verbose
        self._said: set[tuple[str, str]] = set()

    def settled(self, evaluation_id: str, sentence: str) -> Iterator[str]:
        """The line of an evaluator that has ended."""
        if (evaluation_id, sentence) not in self._said:
            self._said.add((evaluation_id, sentence))
            yield f"{evaluation_id}: {sentence}"

    def ended(self, evaluation: Evaluation) -> Iterator[str]:
        """The lines of an evaluation that has ended."""
        from crucible_worker.reports.metric_keys import evaluator_sentences, sample_warnings

        identity, problem = evaluation.evaluation_id, evaluation.problem
        why = "" if problem is None else f", {problem.reason}: {problem.message}"
        yield f"{identity}: {_state(evaluation)}{why}"
        for sentence in evaluator_sentences(evaluation, self._infos):
            if (identity, sentence) not in self._said:
                yield f"  {sentence}"
        for warning in sample_warnings(evaluation):
            yield f"  {warning}"
        if self._verbose:
            metrics = evaluation.metrics
            yield from (f"  {key} {value:.6g}" for key, value in metrics.values.items())
            yield from (f"  {key} is undefined: {reason}" for key, reason in metrics.undefined.items())


class _WatchLines:
    """A line for each change, for logs and pipes."""

    def __init__(self, results: _Results) -> None:
        from crucible_worker.cli.progress import Pace

        self._results = results
        self._said: dict[str, tuple[str, int]] = {}
        self._paces = collections.defaultdict[str, Pace](Pace)

    def __enter__(self) -> _WatchLines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to undo."""

    def update(self, evaluation: Evaluation) -> None:
        identity, state = evaluation.evaluation_id, evaluation.state.value
        said = (_state(evaluation), evaluation.done)
        if self._said.get(identity) == said:
            return
        self._said[identity] = said
        if state in _AT_WORK:
            pace = self._paces[identity]
            typer.echo(f"{identity}: {_state(evaluation)}, {_words(evaluation, pace)}")
        else:
            for line in self._results.ended(evaluation):
                typer.echo(line)

    def settled(self, evaluation_id: str, sentence: str) -> None:
        for line in self._results.settled(evaluation_id, sentence):
            typer.echo(line)


class _WatchBars:
    """A bar for each evaluation, on a terminal."""

    def __init__(self, results: _Results) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        from crucible_worker.cli.progress import Pace

        self._results = results
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(file=sys.stdout),
        )
        self._bars: dict[str, TaskID] = {}
        self._paces = collections.defaultdict[str, Pace](Pace)
        self._ended: set[str] = set()

    def __enter__(self) -> _WatchBars:
        # From here on Ctrl-C has something to clean up: the cursor is hidden, and the line has no end.
        raise_interrupts()
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
        pace, at_work = self._paces[identity], state in _AT_WORK
        self._progress.update(
            self._bars[identity],
            completed=evaluation.done,
            total=evaluation.total or None,
            words=f"{_state(evaluation)}, {_words(evaluation, pace)}" if at_work else state,
        )
        if not at_work:
            self._ended.add(identity)
            self._print(self._results.ended(evaluation))

    def settled(self, evaluation_id: str, sentence: str) -> None:
        self._print(self._results.settled(evaluation_id, sentence))

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._progress.console.print(line, markup=False, highlight=False)
