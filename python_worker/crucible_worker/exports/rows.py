"""JSON lines and Parquet: a row for each result of a sample, with where it belongs and the fields of its record."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from crucible_bridge.types import Evaluation, Problem, Sample, SampleResult, Usage
from crucible_worker.exports.record_data import record_data
from crucible_worker.util.model_refs import format_original_model

__all__ = ["EVALUATION_COLUMNS", "EXTRA", "LinesWriter", "ParquetColumn", "ParquetWriter", "columns", "row_of"]


EVALUATION_COLUMNS = {
    "evaluation_id": ("str", "Its evaluation."),
    "run_id": ("str", "The orchestrator's run; empty if there is none."),
    "step": ("int | None", "The training step."),
    "model": ("str", "The model as `--model` spells it."),
}
"""By name, the type and the meaning of what each row has before the fields of `SampleResult`."""


def row_of(evaluation: Evaluation, result: SampleResult) -> dict[str, Any]:
    """A result of a sample as plain data."""
    request = evaluation.request
    values = (evaluation.evaluation_id, request.run_id, request.step, format_original_model(request.model))
    return {**dict(zip(EVALUATION_COLUMNS, map(record_data, values), strict=True)), **record_data(result)}


# JSON lines: one object for each result of a sample, ASCII-escaped, without a bare NaN.


class LinesWriter:
    """Writes the results of evaluations to one file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to this file."""
        self._file = file

    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None:
        """Write results of an evaluation."""
        lines = [json.dumps(row_of(evaluation, result), allow_nan=False) + "\n" for result in results]
        self._file.write("".join(lines).encode())

    def end(self) -> None:
        """Nothing stands after the last line."""

    def close(self) -> None:
        """Nothing is open besides the file, which its caller closes."""


# Parquet: one row for each result of a sample, with a column for each field of its record.
#
# The fields of a record inside it, such as `usage`, have columns with a dot: "usage.prompt_tokens". A field that is a
# text or a number stays one, texts are a list, and everything else is JSON: conversations, transcripts, measurements.

EXTRA = "crucible-bridge[datasets]"
"""Has the library that writes it."""
ROWS_TOGETHER = 4_096
"""Rows of a group of the file."""

_INSIDE = {"Sample | None": Sample, "Problem | None": Problem, "Usage | None": Usage}
"""Records whose fields have columns."""
_ARROW = {
    "str": "string",
    "int": "int64",
    "float": "float64",
    "bool": "bool",
    "Verdict": "string",
    "tuple[str, ...]": "list",
    "int | None": "int64",
    "float | None": "float64",
}
"""By a field's type, the type of its column."""
JSON = "JSON"
"""The type of every other one."""


@dataclasses.dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A column."""

    path: tuple[str, ...]
    """The keys of its value in a row."""
    type: str
    """"string", "int64", "float64", "bool", "list" (of texts) or `JSON`."""

    @property
    def name(self) -> str:
        """Its name in the file."""
        return ".".join(self.path)

    def value(self, row: dict[str, Any]) -> Any:
        """Its value in a row; None if the record that has it is not there."""
        value: Any = row
        for key in self.path:
            if value is None:
                return None
            value = value[key]
        return value if self.type != JSON or value is None else json.dumps(value, allow_nan=False)


def columns() -> Sequence[ParquetColumn]:
    """The columns, in order."""
    first = [ParquetColumn((name,), _ARROW[kind]) for name, (kind, _) in EVALUATION_COLUMNS.items()]
    return [*first, *_columns_of(SampleResult)]


def _columns_of(record: type, *above: str) -> Iterator[ParquetColumn]:
    for field in dataclasses.fields(record):
        inside = _INSIDE.get(str(field.type))
        if inside is None:
            yield ParquetColumn((*above, field.name), _ARROW.get(str(field.type), JSON))
        else:
            yield from _columns_of(inside, *above, field.name)


class ParquetWriter:
    """Writes the results of evaluations to one file.

    Raises:
        ImportError: pyarrow is not installed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Write to this file."""
        import pyarrow
        import pyarrow.parquet

        self._pa = pyarrow
        self._columns = columns()
        kinds = {
            "string": pyarrow.string(),
            "int64": pyarrow.int64(),
            "float64": pyarrow.float64(),
            "bool": pyarrow.bool_(),
            "list": pyarrow.list_(pyarrow.string()),
            JSON: pyarrow.string(),
        }
        self._schema = pyarrow.schema([(column.name, kinds[column.type]) for column in self._columns])
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None:
        """Write results of an evaluation."""
        for result in results:
            self._rows.append(row_of(evaluation, result))
            if len(self._rows) == ROWS_TOGETHER:
                self._write()

    def end(self) -> None:
        """Write what is left, and what stands at the end of such a file."""
        self._write()
        self.close()

    def close(self) -> None:
        """Free what pyarrow holds; a file that was not ended is not whole."""
        self._writer.close()

    def _write(self) -> None:
        values = [[column.value(row) for row in self._rows] for column in self._columns]
        arrays = [self._pa.array(each, field.type) for each, field in zip(values, self._schema)]
        self._writer.write_table(self._pa.table(arrays, schema=self._schema))
        self._rows.clear()
