"""Samples as CSV for spreadsheets: one row a sample, always the same columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any, TextIO

from crucible_bridge.types import SampleResult
from crucible_worker.reports.as_json import sample_as_data
from crucible_worker.reports.records import asked_text

__all__ = ["COLUMNS", "cell", "row", "write_csv"]

COLUMNS = (
    *("sample_id", "evaluator", "repeat", "verdict", "score", "input", "targets", "output", "extracted", "method"),
    *("reason", "message", "stop_reason", "prompt_tokens", "output_tokens", "seconds", "metadata"),
)
"""The columns, in their order; later ones are added at the end."""

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\n]")
"""Begins a text that a spreadsheet would run as a formula."""


async def write_csv(stream: TextIO, results: AsyncIterable[SampleResult]) -> None:
    """Write a header and a row for each result as it arrives."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    async for result in results:
        writer.writerow(row(result))


def row(result: SampleResult) -> Sequence[str | int | float | None]:
    """The cells of one result; what is not recorded is empty."""
    data = sample_as_data(result)
    problem, usage = data["problem"] or {}, data["usage"] or {}
    targets = data["targets"] or []
    values: Mapping[str, Any] = {
        **{name: data[name] for name in ("sample_id", "evaluator", "repeat", "verdict", "score", "output")},
        **{name: data[name] for name in ("extracted", "method", "reason", "stop_reason", "output_tokens")},
        "input": asked_text(result) or _as_json(data["input"]),
        "targets": targets[0] if len(targets) == 1 else _as_json(targets),
        "message": problem.get("message"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "seconds": round(result.duration_ns / 1e9, 6) if result.duration_ns > 0 else None,
        "metadata": _as_json(data["metadata"]),
    }
    return [cell(values[name]) for name in COLUMNS]


def cell(value: Any) -> str | int | float | None:
    """A value as a cell: a text that would be a formula begins with an apostrophe, which makes it a text."""
    if not isinstance(value, str):
        return value
    # A carriage return by itself would end a row for some readers.
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if _FORMULA.match(text) else text


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""
