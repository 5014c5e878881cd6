"""Results for people (tables) and for programs (plain data that json can write)."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from crucible_bridge.events import Event
from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.reports.facts import engine_as_data, usage_as_data
from crucible_worker.util.model_refs import format_original_model

__all__ = ["evaluation_as_data", "event_as_data", "one_line", "unscored", "utc_moment", "write_table"]

LEAST_PATH = 16
"""Characters to which a path is shortened at most."""
COMFORTABLE = 24
"""Characters to which texts are wrapped before words are broken."""
LEAST_TEXT = 6
"""Characters of a text's column, however narrow the terminal is."""


def write_table(
    stream: TextIO,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    whole: str = "",
    paths: Sequence[str] = (),
    below: Sequence[str] = (),
) -> None:
    """Write a table, in colour if the stream is a terminal; columns without any content are left out.

    If it is too wide, paths are shortened first, then texts are wrapped between words, then columns move below the
    cells of `whole`, and at last words are broken. What is copied never is: rather the table is wider than its stream.

    Args:
        stream: where to.
        title: above the table.
        columns: their names.
        rows: the texts of the cells.
        whole: a column whose cells are copied by people.
        paths: columns whose cells lose their beginning: "\u2026/run-7/checkpoint-320".
        below: columns that are lines below the cells of `whole` where there is no room for them beside it.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [index for index in range(len(columns)) if not rows or any(row[index] for row in rows)]
    names, cells = [columns[index] for index in used], [[row[index] for index in used] for row in rows]
    console = Console(file=stream)
    if below and whole in names and _least(names, cells, whole, paths) > _room(console.width, names):
        names, cells = _stacked(names, cells, whole, paths, [name for name in names if name in below])
        whole = names[0]
    widths = _widths(names, cells, _room(console.width, names), whole, paths)
    table = Table()
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, overflow="fold", width=width)
    for row in cells:
        shown = [
            _shortened(cell, width) if name in paths else cell
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        # As Text, because texts of files and models may look like markup.
        table.add_row(*map(Text, shown))
    # Not the table's own title, which would be wrapped to the table's width.
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.width = max(console.width, sum(widths) + _lines(names))
    console.print(table)


def _lines(names: Sequence[str]) -> int:
    """The width of the lines between columns, with the blanks beside them."""
    return 3 * len(names) + 1


def _room(width: int, names: Sequence[str]) -> int:
    return width - _lines(names)


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    return [[name, *(row[index] for row in rows)] for index, name in enumerate(names)]


def _longest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts))


def _least(names: Sequence[str], rows: Sequence[Sequence[str]], whole: str, paths: Sequence[str]) -> int:
    """The width of all columns with no word broken, and with texts that can be read."""
    least = 0
    for name, column in zip(names, _columns(names, rows), strict=True):
        width = _longest(line for cell in column for line in cell.split("\n"))
        word = _longest(word for cell in column for word in _words(cell))
        least += width if name == whole else min(width, LEAST_PATH if name in paths else max(COMFORTABLE, word))
    return least


def _stacked(
    names: Sequence[str], rows: Sequence[Sequence[str]], whole: str, paths: Sequence[str], below: Sequence[str]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The same table, whose first column has the cells of `whole`, each above those of other columns.

    The cells below others are as wide as these, or as a text that can be read: paths lose their beginning.
    """
    index = {name: place for place, name in enumerate(names)}
    rest = [name for name in names if name != whole and name not in below]
    width = max(COMFORTABLE, _longest(row[index[whole]] for row in rows))

    def cell(row: Sequence[str]) -> str:
        under = [
            _shortened(row[index[name]], width) if name in paths else _folded(row[index[name]], width) for name in below
        ]
        return "\n".join(filter(None, (row[index[whole]], *under)))

    cells = [[cell(row), *(row[index[name]] for name in rest)] for row in rows]
    return ["\n".join((whole, *below)), *rest], cells


def _folded(text: str, width: int) -> str:
    """A text in lines of this width."""
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


def _widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], room: int, whole: str, paths: Sequence[str]
) -> list[int]:
    """The width of each column, so that all of them fit if that is possible with `whole` as it is."""
    columns = _columns(names, rows)
    widths = [_longest(line for cell in column for line in cell.split("\n")) for column in columns]
    shortened = [index for index, name in enumerate(names) if name in paths]
    texts = [index for index, name in enumerate(names) if name not in (whole, *paths)]
    words = [_longest(word for cell in column for word in _words(cell)) for column in columns]
    _reduce(widths, shortened, [LEAST_PATH] * len(names), room)
    _reduce(widths, texts, [max(COMFORTABLE, word) for word in words], room)
    _reduce(widths, texts, [min(COMFORTABLE, word) for word in words], room)
    _reduce(widths, [*texts, *shortened], [LEAST_TEXT] * len(names), room)
    return widths


def _words(cell: str) -> Sequence[str]:
    """What is not broken over lines: words, and a cell without any letter, as a date."""
    return cell.split() if any(map(str.isalpha, cell)) else [cell]


def _reduce(widths: list[int], some: Sequence[int], least: Sequence[int], room: int) -> None:
    """Take from the widest of some columns until all columns fit, or none of these has anything to give."""
    while sum(widths) > room and (giving := [index for index in some if widths[index] > least[index]]):
        widths[max(giving, key=widths.__getitem__)] -= 1


def _shortened(text: str, width: int) -> str:
    """The end of each line of a text."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= width else f"\u2026{line[len(line) - width + 1 :]}" for line in lines)


def utc_moment(unix_ns: int) -> str:
    """A moment as tables have it; the column's name says that it is in UTC."""
    return datetime.datetime.fromtimestamp(unix_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d %H:%M")


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
