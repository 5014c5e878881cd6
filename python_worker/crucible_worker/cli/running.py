"""Evaluations that run in this process, without a server: one after the other, also those that are resumed.

Their results are compared, and shown as tables or as one object; the exit code follows from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from crucible_bridge.codec.events import events_from_records
from crucible_bridge.errors import BridgeError, NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CompareRequest,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    PairedComparison,
    Problem,
    SampleResult,
    Usage,
    Verdict,
    format_model,
)
from crucible_worker.analysis.comparison import Comparisons
from crucible_worker.cli.hints import hints, messages_of, unseen_choices, without_repeats
from crucible_worker.cli.options import (
    EXIT_BUDGET,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_SCORED,
    EXIT_USAGE,
    settings_or_exit,
)
from crucible_worker.cli.progress import Show, progress
from crucible_worker.cli.reading import read_or_exit, say_state
from crucible_worker.cli.refusals import Refused, in_flags, refusing
from crucible_worker.cli.report import written
from crucible_worker.cli.requests import EvaluationToRun
from crucible_worker.cli.tables import evaluation_as_data, write_table
from crucible_worker.cli.workspace import Termination, opened, with_roots
from crucible_worker.config import Settings
from crucible_worker.engine.budgets import waits_for_budget
from crucible_worker.engine.phases import Phase
from crucible_worker.engine.resuming import refuse_bound
from crucible_worker.evaluations import Evaluations
from crucible_worker.evaluators.registry import EvaluatorParts, info_if_known
from crucible_worker.journal.records import Joint
from crucible_worker.reports.facts import adjustments_text, another_model, named_with_role, several_places, state_text
from crucible_worker.reports.metric_keys import evaluator_sentences, sample_warnings
from crucible_worker.server.parts import CustomFiles
from crucible_worker.telemetry import configure_logging
from crucible_worker.util.model_refs import format_original_model

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = [
    "COMPARISON_COLUMNS",
    "Compared",
    "EvaluationRun",
    "NotRun",
    "OutputFormat",
    "RunSummary",
    "compared",
    "comparison_as_data",
    "comparison_tables",
    "joint_as_text",
    "resume_at_worker",
    "resume_here",
    "run",
    "until_paused",
    "unwritable",
    "write_error",
]

# Several models in the same evaluations: each compared with the first, as rows for people and data for programs.

COMPARISON_COLUMNS = ("evaluator", "mean", "difference", "95% interval", "better, worse")
"""The columns of the rows of `comparison_tables`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An evaluator's scores of a model, sample by sample with those of the first model."""

    name: str
    """The name of a suite's evaluation; may be empty."""
    baseline: str
    """The model that it is compared with."""
    model: str
    """The compared model."""
    pair: PairedComparison
    """The numbers, or the problem."""


async def compared(comparisons: Comparisons, ended: Sequence[tuple[str, Evaluation]]) -> Sequence[Compared]:
    """Compare the evaluations of each name, if there are several.

    Args:
        comparisons: of the journal that has the evaluations.
        ended: names of a suite's evaluations, or empty names, with the evaluations that have ended.
    """
    by_name: dict[str, list[Evaluation]] = {}
    for name, evaluation in ended:
        by_name.setdefault(name, []).append(evaluation)
    found: list[Compared] = []
    for name, evaluations in by_name.items():
        if len(evaluations) > 1:
            found.extend([each async for each in _pairs(comparisons, name, evaluations)])
    return found


async def _pairs(comparisons: Comparisons, name: str, evaluations: Sequence[Evaluation]) -> AsyncIterator[Compared]:
    models = {evaluation.evaluation_id: format_original_model(evaluation.request.model) for evaluation in evaluations}
    try:
        found = await comparisons.compare(CompareRequest(evaluation_ids=tuple(models), max_listed=0))
    except BridgeError as error:
        # For example, a data file changed between two models: the evaluations themselves are valid.
        problem = Problem(reason=error.reason, message=error.message)
        first, *others = models
        for other in others:
            pair = PairedComparison(baseline_id=first, evaluation_id=other, evaluator="", problem=problem)
            yield Compared(name=name, baseline=models[first], model=models[other], pair=pair)
        return
    for pair in found.comparisons:
        yield Compared(name=name, baseline=models[pair.baseline_id], model=models[pair.evaluation_id], pair=pair)


def comparison_tables(several: Sequence[Compared]) -> Iterator[tuple[str, Sequence[Sequence[str]]]]:
    """A title and rows for each model except the first, in the columns of `COMPARISON_COLUMNS`."""
    by_title: dict[str, list[Sequence[str]]] = {}
    for each in several:
        by_title.setdefault(f"{each.model}, compared with {each.baseline}", []).append(_row(each))
    yield from by_title.items()


def _row(each: Compared) -> Sequence[str]:
    pair = each.pair
    label = ": ".join(filter(None, (each.name, pair.evaluator)))
    if pair.problem is not None:
        return (label, "", f"not compared: {pair.problem.message}", "", "")
    mean, difference, low, high = (
        "" if (value := pair.metrics.values.get(key)) is None else f"{value:.4g}"
        for key in ("mean", "difference", "difference_ci_low", "difference_ci_high")
    )
    interval = f"{low} to {high}" if low and high else ""
    return (label, mean, difference, interval, f"{pair.n_improved}, {pair.n_regressed} of {pair.n_matched}")


def comparison_as_data(each: Compared) -> dict[str, Any]:
    """For json."""
    pair = each.pair
    return {
        **({"name": each.name} if each.name else {}),
        "evaluator": pair.evaluator,
        "baseline": each.baseline,
        "model": each.model,
        "n_matched": pair.n_matched,
        "n_improved": pair.n_improved,
        "n_regressed": pair.n_regressed,
        "metrics": dict(pair.metrics.values),
        "interval_method": pair.interval_method,
        "problem": None if pair.problem is None else dataclasses.asdict(pair.problem),
    }


PHASE_SECONDS = 0.2
"""Between two looks at what is done."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """An evaluation that ran."""

    model: str
    """The model as it was typed."""
    name: str
    """The name of a suite's evaluation; may be empty."""
    evaluation: Evaluation
    """The evaluation when it ended."""
    first_unscored: Mapping[str, SampleResult]
    """The first unscored sample of each evaluator, with its problem: the journal may be deleted with the command."""
    joint: Joint | None = None
    """How the first prompt and its target meet; None if a template joins them."""
    unseen: Sequence[str] = ()
    """Evaluators that compare answers with choices which the model was not shown."""
    earlier: bool = False
    """Whether it had ended before: this command shows its result, and has not evaluated."""

    @property
    def over_budget(self) -> bool:
        """Whether it is paused, as a bound of its cost or tokens is reached."""
        return waits_for_budget(self.evaluation)

    @property
    def succeeded(self) -> bool:
        """Whether every evaluator finished."""
        finished = all(result.problem is None for result in self.evaluation.results)
        return finished and self.evaluation.state is EvaluationState.COMPLETED

    @property
    def without_scores(self) -> Sequence[EvaluatorResult]:
        """The evaluators that read their samples, and scored none of them."""
        read = (None, Reason.TOO_MANY_UNSCORED)
        reasons = [result.problem and result.problem.reason for result in self.evaluation.results]
        found = zip(self.evaluation.results, reasons, strict=True)
        return [result for result, reason in found if reason in read and result.n_scored == 0]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """An evaluation that was refused."""

    model: str
    """The model as it was typed."""
    name: str
    """The name of a suite's evaluation; may be empty."""
    error: BridgeError
    """Why."""
    message: str
    """The error by the flags that were typed."""
    refused: bool
    """Whether the request is wrong."""


async def run(
    settings: Settings,
    asked: Sequence[EvaluationToRun],
    evaluators: Sequence[str],
    ended: list[EvaluationRun | NotRun],
    custom: CustomFiles | None = None,
    *,
    quiet: bool,
    rerun: bool = False,
) -> Sequence[Compared]:
    """Run evaluations in order, then compare those of several models; a refused one does not affect the others.

    Args:
        settings: of the worker that runs in this process meanwhile.
        asked: what to run.
        evaluators: as typed, "[NAME=]KIND", for error messages.
        ended: receives each evaluation when it has ended, so that these remain if another is interrupted.
        custom: evaluators and graders of files that the command names.
        quiet: write no progress without a terminal.
        rerun: evaluate again what has ended, under the next free id.

    Returns:
        A comparison of the models for each evaluation that several of them have; empty for one model.

    Raises:
        BridgeError: nothing can run here, whatever the request is.
        CancelledError: SIGTERM arrived; the running evaluation is interrupted, and its processes are ended.
    """
    termination = Termination()
    # Progress has a line for an outage, and the end has its reason.
    log_writer = configure_logging("console", "warning", left_out=() if quiet else ("model_away", "model_gone"))
    try:
        with progress(sys.stderr, quiet=quiet) as show:
            show.phase(asked[0].label, "opening the journal")
            async with opened(settings, custom, termination) as parts:
                for each in asked:
                    if rerun:
                        each = dataclasses.replace(each, request=await _again(parts.evaluations, each.request))
                    found = await _one(parts.evaluations, settings, each, evaluators, show)
                    ended.append(found)
                return await compared(
                    parts.evaluations.comparisons,
                    [(each.name, each.evaluation) for each in ended if isinstance(each, EvaluationRun)],
                )
    finally:
        log_writer.close(1.0)


async def _one(
    evaluations: Evaluations, settings: Settings, asked: EvaluationToRun, evaluators: Sequence[str], show: Show
) -> EvaluationRun | NotRun:
    label = asked.label
    show.phase(label, Phase.READING)
    after: int | None = None
    earlier = False
    failed = await _failed_before(evaluations, asked.request.evaluation_id)
    while True:
        try:
            with refusing(settings, evaluators, asked.path, model=asked.model):
                if asked.resumes and failed is None:
                    await evaluations.end_pause(asked.request.evaluation_id, asked.bounds)
                evaluation, existed = await evaluations.start(asked.request, recorded=asked.resumes)
                if asked.bounds and failed is not None and not evaluation.state.terminal:
                    evaluation = await evaluations.end_pause(asked.request.evaluation_id, asked.bounds)
        except Refused as refused:
            return NotRun(model=asked.model, name=asked.name, error=refused.error, message=str(refused), refused=True)
        except BridgeError as error:
            message = in_flags(error, settings, evaluators, asked.path, model=asked.model)
            return NotRun(model=asked.model, name=asked.name, error=error, message=message, refused=False)
        if waits_for_budget(evaluation):
            break
        if after is None:
            # Earlier events are not shown again.
            after = evaluation.last_sequence if existed else 0
            earlier = existed and evaluation.state.terminal
        if failed is not None and evaluation.state.terminal:
            show.say(label, "failed before, for a reason that no further attempt changes: nothing runs")
        if existed and not evaluation.state.terminal:
            if failed is not None:
                why, failed = f"failed before, {failed.reason}: {failed.message}", None
                show.say(label, f"{why}; attempt {evaluation.attempt} begins")
            # The event of the resumption is not shown, so that this phase is shown while the model is loaded.
            show.phase(label, "resuming: preparing the model", done=evaluation.done, total=evaluation.total or None)
        async with _phases(evaluations, evaluation.evaluation_id, label, show):
            after, interrupted = await _shown(evaluations, evaluation.evaluation_id, after, label, show)
        if not interrupted:
            break
        # Another process ran it, and has ended: this one resumes it.
    evaluation = await evaluations.get(evaluation.evaluation_id)
    return EvaluationRun(
        model=asked.model,
        name=asked.name,
        evaluation=evaluation,
        first_unscored=await _first_unscored(evaluations, evaluation),
        joint=await evaluations.joint(evaluation.evaluation_id),
        unseen=await unseen_choices(evaluations, evaluation),
        earlier=earlier,
    )


async def _again(evaluations: Evaluations, request: EvaluateRequest) -> EvaluateRequest:
    """The request under the first of ID, ID-2, ID-3 ... that has not ended: one that was interrupted is resumed."""
    number, evaluation_id = 1, request.evaluation_id
    while await _has_ended(evaluations, evaluation_id):
        number += 1
        evaluation_id = f"{request.evaluation_id}-{number}"
    return dataclasses.replace(request, evaluation_id=evaluation_id)


async def _has_ended(evaluations: Evaluations, evaluation_id: str) -> bool:
    try:
        return (await evaluations.get(evaluation_id)).state.terminal
    except NotFound:
        return False


async def _failed_before(evaluations: Evaluations, evaluation_id: str) -> Problem | None:
    """Why an evaluation has failed that may be run again; None if there is none."""
    try:
        found = await evaluations.get(evaluation_id)
    except NotFound:
        return None
    return found.problem if found.state is EvaluationState.FAILED else None


@contextlib.asynccontextmanager
async def _phases(evaluations: Evaluations, evaluation_id: str, label: str, show: Show) -> AsyncIterator[None]:
    """Show what is done for an evaluation meanwhile, if this process runs it."""

    async def follow() -> None:
        while True:
            if (phase := evaluations.phase(evaluation_id)) is not None:
                show.phase(label, phase)
            await asyncio.sleep(PHASE_SECONDS)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def _shown(evaluations: Evaluations, evaluation_id: str, after: int, label: str, show: Show) -> tuple[int, bool]:
    """Show its events until it ends or is interrupted; returns the last sequence, and whether it was interrupted."""
    watched = evaluations.watch(
        evaluation_id,
        after_sequence=after,
        log_id=evaluations.log_id,
        without_samples=True,
        new_kinds=True,
        pack=lambda page: list(events_from_records(page.records)),
    )
    kind = None
    async with contextlib.aclosing(watched) as pages:
        async for events in pages:
            if (phase := evaluations.phase(evaluation_id)) is not None:
                show.phase(label, phase)
            for event in events:
                show(label, event)
                after, kind = event.sequence, event.kind
            paused = any(event.kind is EventKind.EVALUATION_PAUSED for event in events)
            if paused and waits_for_budget(await evaluations.get(evaluation_id)):
                await until_paused(evaluations, evaluation_id)
                return after, False
            if kind is EventKind.EVALUATION_INTERRUPT:
                return after, True
    return after, False


async def until_paused(evaluations: Evaluations, evaluation_id: str) -> None:
    """Wait until the calls in flight of a paused evaluation have their answers, if this process makes them."""
    while True:
        if evaluations.phase(evaluation_id) in (None, Phase.PAUSED):
            return
        await asyncio.sleep(PHASE_SECONDS)


async def _first_unscored(evaluations: Evaluations, evaluation: Evaluation) -> dict[str, SampleResult]:
    verdicts = [verdict for verdict in Verdict if not verdict.scored]
    found = {}
    for result in evaluation.results:
        label = result.evaluator.label
        samples, _ = await evaluations.samples(
            evaluation.evaluation_id, verdicts=verdicts, evaluator=label, page_size=1
        )
        if samples:
            found[label] = samples[0]
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """How results are shown."""

    as_json: bool = False
    """One object, and nothing for people."""
    verbose: bool = False
    """Every key in a table, in place of sentences."""
    output: Path | None = None
    """A file that gets the object too."""

    def write_data(self, data: Mapping[str, Any]) -> None:
        """Write the object where it is wanted.

        Raises:
            Exit: the file cannot be written; everything else is.
        """
        text = json.dumps(data, allow_nan=False)
        if self.as_json:
            typer.echo(text)
        if self.output is not None:
            try:
                written(self.output, f"{text}\n")
            except OSError as error:
                why = error.strerror or error
                typer.echo(f"crucible-worker: --output {self.output} cannot be written: {why}", err=True)
                raise typer.Exit(EXIT_FAILED) from None


def unwritable(file: Path) -> str:
    """Why a file cannot be written, as far as that is known before; empty if nothing is known."""
    try:
        if file.is_dir():
            return "it is a folder"
    except OSError as error:  # such as a name that is too long
        return error.strerror or str(error)
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    return "" if os.access(file.parent, os.W_OK) else f"the folder {file.parent} is not writable"


@dataclasses.dataclass(slots=True, kw_only=True)
class RunSummary:
    """The requested evaluations that have ended so far."""

    models: Sequence[str]
    """The models as they were typed."""
    shown: OutputFormat = dataclasses.field(default_factory=OutputFormat)
    """How they are shown."""
    place: str | None = None
    """Options by which other commands read the journal of the results; None if the results are not kept."""
    parts: EvaluatorParts | None = None
    """Evaluators and graders, with those of files that the command names."""
    suite: str = ""
    """The suite's name; empty without one."""
    total: int = 0
    """The number of requested evaluations."""
    several: list[EvaluationRun | NotRun] = dataclasses.field(default_factory=list)
    """Those that have ended, or were refused."""
    compared: Sequence[Compared] = ()
    """The models compared with the first, once all have ended."""

    def write(self) -> None:
        """Write sentences or a table for each evaluation and for all comparisons; or one object for all of it.

        Raises:
            Exit: the file for the object cannot be written.
        """
        one = not self.suite and len(self.models) == 1
        if not self.shown.as_json:
            self._write_for_people(one=one)
        elif one and isinstance(self.several[0], NotRun):
            typer.echo(f"crucible-worker: {self.several[0].message}", err=True)
        if self.shown.as_json:
            for each in self.several:
                if isinstance(each, EvaluationRun) and each.earlier:
                    typer.echo(f"crucible-worker: {_earlier(each.evaluation)}", err=True)
        self.shown.write_data(_as_data(self.several[0]) if one else self._as_data())

    def exit_code(self) -> int:
        """0 if every evaluator finished and scored, 4 if one finished without a score; these are named on stderr."""
        over = [each.evaluation for each in self.several if isinstance(each, EvaluationRun) and each.over_budget]
        for evaluation in over:
            command = f"crucible-worker resume {shlex.quote(evaluation.evaluation_id)}{self.place or ''}"
            option = "--" + evaluation.waiting_for.split(":")[0].removeprefix("a larger ").replace("_", "-")
            typer.echo(
                f"crucible-worker: paused: {evaluation.evaluation_id} waits for {evaluation.waiting_for}; "
                f"{command} {option} MORE continues",
                err=True,
            )
        if over:
            return EXIT_BUDGET
        scored = self._tell_without_scores()
        if all(isinstance(each, EvaluationRun) and each.succeeded for each in self.several):
            return 0 if scored else EXIT_NOTHING_SCORED
        failed = any(isinstance(each, EvaluationRun) or not each.refused for each in self.several)
        return EXIT_FAILED if failed else EXIT_USAGE

    def _as_data(self) -> dict[str, Any]:
        one = len(self.models) == 1
        data: dict[str, Any] = {"suite": self.suite} if self.suite else {}
        data |= {"model": self.models[0]} if one else {"models": list(self.models)}
        data["evaluations"] = [
            {**({"name": each.name} if self.suite else {}), "model": each.model, **_as_data(each)}
            for each in self.several
        ]
        return data if one else {**data, "comparisons": [comparison_as_data(each) for each in self.compared]}

    def _write_for_people(self, *, one: bool) -> None:
        for each in self.several:
            if isinstance(each, EvaluationRun):
                self._write_ran(each)
            elif one:
                typer.echo(f"crucible-worker: {each.message}", err=True)
            else:
                typer.echo(f"{self._label(each)}: did not run: {each.message}")
        for title, rows in comparison_tables(self.compared):
            write_table(sys.stdout, title, COMPARISON_COLUMNS, rows)
        if not one:
            finished = sum(isinstance(each, EvaluationRun) and each.succeeded for each in self.several)
            typer.echo(f"{self.suite or 'evaluations'}: {finished} of {self.total} finished")
        ids = [shlex.quote(each.evaluation.evaluation_id) for each in self.several if isinstance(each, EvaluationRun)]
        if self.place is not None and ids:
            show, report = f"show {ids[0]}{self.place}", f"report {' '.join(ids)}{self.place}"
            typer.echo(f"More: crucible-worker {show}; crucible-worker {report}")

    def _write_ran(self, ran: EvaluationRun) -> None:
        evaluation = ran.evaluation
        if ran.earlier:
            typer.echo(_earlier(evaluation))
        title = ", ".join(filter(None, (ran.name, _title(evaluation))))
        if self.shown.verbose:
            write_table(sys.stdout, title, ("key", "value"), _rows(ran))
            return
        typer.echo(title)
        if ran.joint is not None:
            typer.echo(f"prompt ends {joint_as_text(ran.joint)}")
        kinds = {result.evaluator.kind for result in evaluation.results}
        known = {kind: info_if_known(kind, self.parts) for kind in kinds}
        said: list[str] = []
        sentences = evaluator_sentences(evaluation, {kind: info for kind, info in known.items() if info})
        notes = (f"{'warning: ' if name in _WARNINGS else ''}{name}: {text}" for name, text in _notes(ran))
        firsts = (first.problem for first in ran.first_unscored.values())
        messages = messages_of([*firsts, *(result.problem for result in evaluation.results), evaluation.problem])
        for line in (*sentences, *sample_warnings(evaluation), *hints(evaluation, ran.unseen), *notes):
            typer.echo(without_repeats(line, said))
            said += [each for each in messages if each in line]

    def _label(self, each: EvaluationRun | NotRun) -> str:
        """What distinguishes it from the others."""
        return " ".join(filter(None, (each.model if len(self.models) > 1 else "", each.name)))

    def _tell_without_scores(self) -> bool:
        """Report evaluators that scored no sample; returns whether there are none."""
        found = [
            (self._label(each), result, each.first_unscored.get(result.evaluator.label))
            for each in self.several
            if isinstance(each, EvaluationRun)
            for result in each.without_scores
        ]
        for name, result, first in found:
            label = " ".join(filter(None, (name and f"{name}:", result.evaluator.label)))
            why = (
                f"; the first: {_problem_text(first.problem)}"
                if first is not None and first.problem is not None
                else ""
            )
            typer.echo(f"crucible-worker: {label} scored none of {result.n:,} samples{why}", err=True)
        return not found


def _earlier(evaluation: Evaluation) -> str:
    """That nothing was evaluated, and how to do that."""
    ended = datetime.datetime.fromtimestamp(evaluation.ended_unix_ns / 1e9)
    return (
        f"{evaluation.evaluation_id}: result of {ended:%Y-%m-%d %H:%M}, nothing was evaluated now; "
        "--rerun or another --id evaluates again"
    )


def joint_as_text(joint: Joint) -> str:
    """How a prompt and its target meet, in one line: "...France?", target " Paris"."""
    prompt, target = (json.dumps(text, ensure_ascii=not text.isprintable()) for text in (joint.prompt, joint.target))
    return f"{prompt}, target {target}"


def write_error(error: BridgeError, message: str, shown: OutputFormat) -> None:
    """Write why nothing ran: a line on stderr, and an object for programs.

    Raises:
        Exit: the file for the object cannot be written.
    """
    typer.echo(f"crucible-worker: {message}", err=True)
    shown.write_data({"error": _error_as_data(error, message)})


def _error_as_data(error: BridgeError, message: str) -> dict[str, Any]:
    return {"code": error.code.value, "reason": error.reason, "field": error.field, "message": message}


def _as_data(each: EvaluationRun | NotRun) -> dict[str, Any]:
    if isinstance(each, EvaluationRun):
        joint = None if each.joint is None else dataclasses.asdict(each.joint)
        return {**evaluation_as_data(each.evaluation, each.first_unscored), "joint": joint}
    return {"error": _error_as_data(each.error, each.message)}


def _rows(ran: EvaluationRun) -> list[Sequence[str]]:
    metrics = ran.evaluation.metrics
    rows: list[Sequence[str]] = [] if ran.joint is None else [["prompt ends", joint_as_text(ran.joint)]]
    rows += [[key, f"{value:.6g}"] for key, value in metrics.values.items()]
    rows += [[key, f"undefined: {reason}"] for key, reason in metrics.undefined.items()]
    for result in ran.evaluation.results:
        rows.append([f"{result.evaluator.label}: scored", f"{result.n_scored} of {result.n}"])
        if result.problem is not None:
            rows.append([f"{result.evaluator.label}: failed", _problem_text(result.problem)])
    return rows + [list(note) for note in _notes(ran)]


_WARNINGS = ("served model", "several addresses")
"""Notes that say that the numbers may be those of another model."""


def _notes(ran: EvaluationRun) -> Iterator[tuple[str, str]]:
    """What there is to say besides metrics: another model, samples without a score, tokens, and how it ended."""
    evaluation = ran.evaluation
    if other := another_model(evaluation.engine):
        yield "served model", other
    if moved := several_places(evaluation):
        yield moved
    for result in evaluation.results:
        if (first := ran.first_unscored.get(result.evaluator.label)) is not None:
            why = first.verdict.value if first.problem is None else _problem_text(first.problem)
            yield f"{result.evaluator.label}: unscored", f"{result.n_unscored}, the first {first.sample_id!r}: {why}"
    if adjusted := adjustments_text(evaluation.engine):
        yield "sampling refused", adjusted
    if evaluation.usage is not None:
        for model, usage in _by_model(evaluation, evaluation.usage):
            yield f"tokens: {model}", _spent(usage)
    if evaluation.problem is not None:
        yield evaluation.state.value, _ended_by(evaluation, evaluation.problem)


def _ended_by(evaluation: Evaluation, problem: Problem) -> str:
    deadline_ms = evaluation.request.limits.deadline_ms
    if problem.reason == Reason.DEADLINE_EXCEEDED and deadline_ms is not None:
        return f"--timeout {deadline_ms / 1000:g} is over, all attempts together"
    return _problem_text(problem)


def _by_model(evaluation: Evaluation, usage: Usage) -> Iterator[tuple[str, Usage]]:
    """The usage of the model and the further ones, if they were queried."""
    if usage.calls:
        yield format_original_model(evaluation.request.model), usage
    for judge in usage.judges:
        yield named_with_role(evaluation, judge.model), judge.usage


def _spent(usage: Usage) -> str:
    """The usage of one model, in a few words."""
    parts = [
        (usage.prompt_tokens, "prompt"),
        (usage.cached_prompt_tokens, "of them cached"),
        (usage.output_tokens, "output"),
        (usage.reasoning_tokens, "of them reasoning"),
    ]
    words = [f"{count:,} {name}" for count, name in parts if count is not None]
    if usage.unreported_calls:
        words.append(f"{usage.unreported_calls:,} of {usage.calls:,} calls unreported")
    if usage.cost is not None:
        words.append(f"cost {usage.cost:.6g}")
    return ", ".join(words)


def _problem_text(problem: Problem) -> str:
    return " ".join(filter(None, (problem.field, problem.message)))


def _title(evaluation: Evaluation) -> str:
    model, seconds = format_original_model(evaluation.request.model), evaluation.duration_ns / 1e9
    together = f", {evaluation.attempt:,} attempts together" if evaluation.attempt > 1 else ""
    return f"{model}: {state_text(evaluation)} in {seconds:.1f} s{together}"


_BEGIN = (EvaluationState.INTERRUPTED, EvaluationState.FAILED)


def resume_at_worker(evaluation_id: str | None, *places: Any, as_json: bool, bounds: Mapping[str, Any]) -> int:
    """Have a worker resume an evaluation, or every interrupted one; returns the exit code.

    Args:
        evaluation_id: which; every interrupted one if None.
        places: as of `read_or_exit`.
        as_json: write JSON.
        bounds: what it may spend now.
    """

    async def resume(bridge: Bridge) -> int:
        if evaluation_id is not None:
            say_state(await bridge.evaluation.resume_evaluation(evaluation_id, **bounds), as_json)
            return 0
        refused = 0
        for evaluation in await _interrupted(bridge):
            try:
                say_state(await bridge.evaluation.resume_evaluation(evaluation.evaluation_id, **bounds), as_json)
            except BridgeError as error:
                refused += 1
                _say_refused(evaluation, error, as_json)
        return EXIT_FAILED if refused else 0

    return read_or_exit(resume, *places)


def resume_here(evaluation_id: str | None, *places: Any, as_json: bool, bounds: Mapping[str, Any], **flags: Any) -> int:
    """Run the rest of an evaluation, or of every interrupted one, in this process; returns the exit code.

    Args:
        evaluation_id: which; every interrupted one if None. One that runs only has its pause ended.
        places: as of `read_or_exit`: they name a journal of this machine.
        as_json: write JSON.
        bounds: what it may spend now.
        flags: settings of the worker that runs in this process meanwhile.
    """

    async def found(bridge: Bridge) -> Sequence[Evaluation]:
        if evaluation_id is None:
            return await _interrupted(bridge)
        evaluation = await bridge.evaluation.get_evaluation(evaluation_id)
        if evaluation.state in _BEGIN:
            return [evaluation]
        say_state(await bridge.evaluation.resume_evaluation(evaluation_id, **bounds), as_json)
        return []

    asked: list[EvaluationToRun] = []
    refused = 0
    for evaluation in read_or_exit(found, *places):
        try:
            refuse_bound(evaluation.request)
        except BridgeError as error:
            refused += 1
            _say_refused(evaluation, error, as_json)
            continue
        model = format_model(evaluation.request.model)
        # A name of its own: evaluations of several data sets are not compared.
        name = evaluation.evaluation_id
        asked.append(
            EvaluationToRun(request=evaluation.request, model=model, name=name, label=name, resumes=True, bounds=bounds)
        )
    if not asked:
        return EXIT_FAILED if refused else 0
    config, state_dir, *_ = places
    settings = with_roots(settings_or_exit(config, state_dir=state_dir, client_variables=True, **flags))
    outcome = RunSummary(models=[one.model for one in asked], shown=OutputFormat(as_json=as_json), total=len(asked))
    kinds = [spec.label for one in asked for spec in one.request.evaluators]
    try:
        asyncio.run(run(settings, asked, kinds, outcome.several, quiet=as_json))
    except BridgeError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        typer.echo("crucible-worker: ended before all was evaluated; the same command resumes it", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    outcome.write()
    return max(outcome.exit_code(), EXIT_FAILED if refused else 0)


async def _interrupted(bridge: Bridge) -> Sequence[Evaluation]:
    states = (EvaluationState.INTERRUPTED,)
    return [evaluation async for evaluation in bridge.evaluation.all_evaluations(states=states)][::-1]


def _say_refused(evaluation: Evaluation, error: BridgeError, as_json: bool) -> None:
    if as_json:
        data = {"evaluation_id": evaluation.evaluation_id, "not_resumed": error.reason, "message": error.message}
        typer.echo(json.dumps(data))
    else:
        typer.echo(f"not resumed: {error.field} {error.message}", err=True)
