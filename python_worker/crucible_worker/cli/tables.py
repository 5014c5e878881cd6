"""Results for people (tables) and for programs (plain data that json can write)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from crucible_bridge.events import Event
from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.reports.facts import engine_as_data, usage_as_data
from crucible_worker.util.model_refs import format_original_model

__all__ = ["evaluation_as_data", "event_as_data", "one_line", "unscored", "write_table"]

OTHER_COLUMNS = 30
"""Least width that is left to the other columns, next to one whose cells stay whole."""


def write_table(
    stream: TextIO, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: str = ""
) -> None:
    """Write a table, in colour if the stream is a terminal.

    Args:
        stream: where to.
        title: above the table.
        columns: their names.
        rows: the texts of the cells.
        whole: a column whose cells are copied by people: none is broken over lines if the width allows it.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream)
    table = Table()
    for index, column in enumerate(columns):
        widest = max((len(row[index]) for row in rows), default=0)
        table.add_column(column, overflow="fold", no_wrap=column == whole and widest <= console.width - OTHER_COLUMNS)
    for row in rows:
        # As Text, because texts of files and models may look like markup.
        table.add_row(*(Text(cell) for cell in row))
    # Not the table's own title, which would be wrapped to the table's width.
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def unscored(evaluation: Evaluation) -> int:
    """Unscored samples, summed over the evaluators."""
    return sum(result.n_unscored for result in evaluation.results)


def evaluation_as_data(evaluation: Evaluation, first_unscored: Mapping[str, SampleResult]) -> dict[str, Any]:
    """An evaluation for json, with an unscored sample of each evaluator that has any."""
    return {
        "evaluation_id": evaluation.evaluation_id,
        "run_id": evaluation.request.run_id,
        "step": evaluation.request.step,
        "state": evaluation.state.value,
        "model": format_original_model(evaluation.request.model),
        "metrics": dict(evaluation.metrics.values),
        "undefined": dict(evaluation.metrics.undefined),
        "evaluators": [
            {
                "evaluator": result.evaluator.label,
                "metrics": dict(result.metrics.values),
                "undefined": dict(result.metrics.undefined),
                "n": result.n,
                "n_scored": result.n_scored,
                "n_unscored": result.n_unscored,
                "n_errors": result.n_errors,
                "n_correct": result.n_correct,
                "unscored_by_reason": dict(result.unscored_by_reason),
                "n_truncated": result.n_truncated,
                "n_truncated_reasoning": result.n_truncated_reasoning,
                "usage": usage_as_data(result.usage),
                "first_unscored": _sample_as_data(first_unscored.get(result.evaluator.label)),
                "problem": _as_data(result.problem),
            }
            for result in evaluation.results
        ],
        "n_unscored": unscored(evaluation),
        "duration_seconds": evaluation.duration_ns / 1e9,
        "usage": usage_as_data(evaluation.usage),
        "engine": engine_as_data(evaluation.engine),
        "problem": _as_data(evaluation.problem),
    }


def event_as_data(event: Event) -> Mapping[str, Any]:
    """An event for json, shaped like `:telemetry`: name, measurements, metadata, and the bridge's additions."""
    return {
        "name": list(event.telemetry_name),
        "measurements": dict(event.measurements),
        "metadata": dict(event.metadata),
        "kind": event.kind.value,
        "sequence": event.sequence,
        "unix_time_ns": event.unix_time_ns,
        "duration_ns": event.duration_ns,
        "evaluation_id": event.evaluation_id,
        "run_id": event.run_id,
        "step": event.step,
        "evaluator": event.evaluator,
        "problem": _as_data(event.problem),
        "correlation_id": event.correlation_id,
    }


def _sample_as_data(sample: SampleResult | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {"sample_id": sample.sample_id, "verdict": sample.verdict.value, "problem": _as_data(sample.problem)}


def _as_data(problem: Any) -> dict[str, Any] | None:
    return None if problem is None else dataclasses.asdict(problem)


# Texts of others within lines for people.


def one_line(text: str) -> str:
    """A text without what a terminal would obey, or a system that reads lines.

    A line end would begin another line, which could look like a command of GitHub Actions.
    """
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
