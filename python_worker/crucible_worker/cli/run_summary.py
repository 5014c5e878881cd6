"""Results of the typed evaluations: tables or one object, and the exit code."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import Evaluation, Problem, Usage, format_model
from crucible_worker.cli import compared as comparing
from crucible_worker.cli.compared import Compared
from crucible_worker.cli.options import EXIT_FAILED, EXIT_USAGE
from crucible_worker.cli.running import NotRun, Ran
from crucible_worker.cli.tables import evaluation_as_data, write_table

__all__ = ["RunSummary", "write_error"]


@dataclasses.dataclass(slots=True, kw_only=True)
class RunSummary:
    """The requested evaluations that have ended so far."""

    models: Sequence[str]
    """The evaluators as they were typed."""
    suite: str = ""
    """The suite's name; empty without one."""
    total: int = 0
    """The number of requested evaluations."""
    several: list[Ran | NotRun] = dataclasses.field(default_factory=list)
    """Those that have ended, or were refused."""
    compared: Sequence[Compared] = ()
    """The models compared with the first, once all have ended."""

    def write(self, *, as_json: bool) -> None:
        """Write a table for each evaluation and one for all comparisons; or one object for all of it."""
        if not self.suite and len(self.models) == 1:
            _write(self.several[0], as_json=as_json)
        elif as_json:
            typer.echo(json.dumps(self._as_data(), allow_nan=False))
        else:
            self._write_tables()

    def exit_code(self) -> int:
        """0 if every evaluator finished and scored; evaluators without a score are named on stderr."""
        scored = self._tell_without_scores()
        if all(isinstance(each, Ran) and each.succeeded for each in self.several):
            return 0 if scored else EXIT_FAILED
        failed = any(isinstance(each, Ran) or not each.refused for each in self.several)
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

    def _write_tables(self) -> None:
        for each in self.several:
            if isinstance(each, Ran):
                _write_table(each)
            else:
                typer.echo(f"{self._label(each)}: did not run: {each.message}")
        for title, rows in comparing.tables(self.compared):
            write_table(sys.stdout, title, comparing.COLUMNS, rows)
        finished = sum(isinstance(each, Ran) and each.succeeded for each in self.several)
        typer.echo(f"{self.suite or 'evaluations'}: {finished} of {self.total} finished")

    def _label(self, each: Ran | NotRun) -> str:
        """What distinguishes it from the others."""
        return " ".join(filter(None, (each.model if len(self.models) > 1 else "", each.name)))

    def _tell_without_scores(self) -> bool:
        """Report evaluators that scored no sample; returns whether there are none."""
        found = [
            (self._label(each), result, each.first_unscored.get(result.evaluator.label))
            for each in self.several
            if isinstance(each, Ran)
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


def write_error(error: BridgeError, message: str, *, as_json: bool) -> None:
    """Write why nothing ran: a line on stderr, and an object for programs."""
    if as_json:
        typer.echo(json.dumps({"error": _error_as_data(error, message)}))
    typer.echo(f"crucible-worker: {message}", err=True)


def _error_as_data(error: BridgeError, message: str) -> dict[str, Any]:
    return {"code": error.code.value, "reason": error.reason, "field": error.field, "message": message}


def _write(each: Ran | NotRun, *, as_json: bool) -> None:
    if not isinstance(each, Ran):
        write_error(each.error, each.message, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(_as_data(each), allow_nan=False))
    else:
        _write_table(each)


def _as_data(each: Ran | NotRun) -> dict[str, Any]:
    if isinstance(each, Ran):
        return evaluation_as_data(each.evaluation, each.first_unscored)
    return {"error": _error_as_data(each.error, each.message)}


def _write_table(ran: Ran) -> None:
    title = ", ".join(filter(None, (ran.name, _title(ran.evaluation))))
    write_table(sys.stdout, title, ("key", "value"), _rows(ran))


def _rows(ran: Ran) -> list[Sequence[str]]:
    evaluation = ran.evaluation
    metrics = evaluation.metrics
    rows: list[Sequence[str]] = [[key, f"{value:.6g}"] for key, value in metrics.values.items()]
    rows += [[key, f"undefined: {reason}"] for key, reason in metrics.undefined.items()]
    for result in evaluation.results:
        rows.append([f"{result.evaluator.label}: scored", f"{result.n_scored} of {result.n}"])
        if (first := ran.first_unscored.get(result.evaluator.label)) is not None:
            why = first.verdict.value if first.problem is None else _problem_text(first.problem)
            rows.append(
                [f"{result.evaluator.label}: unscored", f"{result.n_unscored}, the first {first.sample_id!r}: {why}"]
            )
        if result.problem is not None:
            rows.append([f"{result.evaluator.label}: failed", _problem_text(result.problem)])
    if evaluation.usage is not None:
        rows += [[f"tokens: {model}", _spent(usage)] for model, usage in _by_model(evaluation, evaluation.usage)]
    if evaluation.problem is not None:
        rows.append([evaluation.state.value, _problem_text(evaluation.problem)])
    return rows


def _by_model(evaluation: Evaluation, usage: Usage) -> Iterator[tuple[str, Usage]]:
    """The usage of the model and the judges, if they were queried."""
    if usage.calls:
        yield format_model(evaluation.request.model), usage
    for judge in usage.judges:
        yield f"{judge.model} (judge)", judge.usage


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
    return f"{format_model(evaluation.request.model)}: {evaluation.state.value} in {evaluation.duration_ns / 1e9:.1f} s"
