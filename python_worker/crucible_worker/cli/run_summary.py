"""Results of the typed evaluations: tables or one object, and the exit code."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, Problem, Usage
from crucible_worker.cli import compared as comparing
from crucible_worker.cli.compared import Compared
from crucible_worker.cli.options import EXIT_FAILED, EXIT_USAGE
from crucible_worker.cli.report import written
from crucible_worker.cli.running import EvaluationRun, NotRun
from crucible_worker.cli.tables import evaluation_as_data, write_table
from crucible_worker.evaluators.registry import EvaluatorParts, info_if_known
from crucible_worker.journal.records import Joint
from crucible_worker.reports.facts import adjustments_text, another_model
from crucible_worker.reports.further_models import named_with_role
from crucible_worker.reports.sentences import evaluator_sentences, unscored_warnings
from crucible_worker.util.model_refs import format_own_model

__all__ = ["Observation", "RunSummary", "joint_as_text", "unwritable", "write_error"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
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
    shown: Observation = dataclasses.field(default_factory=Observation)
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
        self.shown.write_data(_as_data(self.several[0]) if one else self._as_data())

    def exit_code(self) -> int:
        """0 if every evaluator finished and scored; evaluators without a score are named on stderr."""
        scored = self._tell_without_scores()
        if all(isinstance(each, EvaluationRun) and each.succeeded for each in self.several):
            return 0 if scored else EXIT_FAILED
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
        return data if one else {**data, "comparisons": [comparing.as_data(each) for each in self.compared]}

    def _write_for_people(self, *, one: bool) -> None:
        for each in self.several:
            if isinstance(each, EvaluationRun):
                self._write_ran(each)
            elif one:
                typer.echo(f"crucible-worker: {each.message}", err=True)
            else:
                typer.echo(f"{self._label(each)}: did not run: {each.message}")
        for title, rows in comparing.tables(self.compared):
            write_table(sys.stdout, title, comparing.COLUMNS, rows)
        if not one:
            finished = sum(isinstance(each, EvaluationRun) and each.succeeded for each in self.several)
            typer.echo(f"{self.suite or 'evaluations'}: {finished} of {self.total} finished")
        ids = [shlex.quote(each.evaluation.evaluation_id) for each in self.several if isinstance(each, EvaluationRun)]
        if self.place is not None and ids:
            show, report = f"show {ids[0]}{self.place}", f"report {' '.join(ids)}{self.place}"
            typer.echo(f"More: crucible-worker {show}; crucible-worker {report}")

    def _write_ran(self, ran: EvaluationRun) -> None:
        evaluation = ran.evaluation
        title = ", ".join(filter(None, (ran.name, _title(evaluation))))
        if self.shown.verbose:
            write_table(sys.stdout, title, ("key", "value"), _rows(ran))
            return
        typer.echo(title)
        if ran.joint is not None:
            typer.echo(f"prompt ends {joint_as_text(ran.joint)}")
        kinds = {result.evaluator.kind for result in evaluation.results}
        known = {kind: info_if_known(kind, self.parts) for kind in kinds}
        for sentence in evaluator_sentences(evaluation, {kind: info for kind, info in known.items() if info}):
            typer.echo(sentence)
        for warning in unscored_warnings(evaluation):
            typer.echo(warning)
        for name, text in _notes(ran):
            typer.echo(f"{name}: {text}")

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


def joint_as_text(joint: Joint) -> str:
    """How a prompt and its target meet, in one line: "...France?", target " Paris"."""
    prompt, target = (json.dumps(text, ensure_ascii=not text.isprintable()) for text in (joint.prompt, joint.target))
    return f"{prompt}, target {target}"


def write_error(error: BridgeError, message: str, shown: Observation) -> None:
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


def _notes(ran: EvaluationRun) -> Iterator[tuple[str, str]]:
    """What there is to say besides metrics: another model, samples without a score, tokens, and how it ended."""
    evaluation = ran.evaluation
    if other := another_model(evaluation.engine):
        yield "served model", other
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
        yield format_own_model(evaluation.request.model), usage
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
    model, seconds = format_own_model(evaluation.request.model), evaluation.duration_ns / 1e9
    return f"{model}: {evaluation.state.value} in {seconds:.1f} s"
