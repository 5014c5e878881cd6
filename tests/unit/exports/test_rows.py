"""JSON lines and Parquet: what a result has comes back unchanged."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import SampleResult, Verdict
from crucible_worker.exports.rows import EVALUATION_COLUMNS, JSON, LinesWriter, ParquetWriter, columns
from crucible_worker.reports.plain_json import replace_surrogates
from tests import needs
from tests.unit.exports.results import evaluation_of, results

UNSCORED = [verdict for verdict in Verdict if not verdict.scored]


def lines_of(written: list[SampleResult]) -> list[dict[str, Any]]:
    """What a reader of JSON lines gets."""
    file = io.BytesIO()
    writer = LinesWriter(file)
    writer.add(evaluation_of(written), written)
    writer.end()
    assert file.getvalue().isascii()
    return [json.loads(line, parse_constant=pytest.fail) for line in file.getvalue().splitlines()]


@given(st.lists(results(), max_size=3))
def test_what_a_result_has_survives_json_lines(written: list[SampleResult]):
    """Texts, numbers and None of a result and of its sample come back; half a surrogate pair as U+FFFD."""
    for result, line in zip(written, lines_of(written), strict=True):
        for key in ("sample_id", "output", "extracted", "method", "stop_reason", "prompt"):
            value = getattr(result, key)
            assert line[key] == (None if value is None else replace_surrogates(value))
        assert (line["score"], line["repeat"], line["verdict"]) == (result.score, result.repeat, result.verdict.value)
        assert (line["usage"] is None) == (result.usage is None)
        assert (line["sample"] is None) == (result.sample is None)
        assert [turn["text"] for turn in line["turns"]] == [replace_surrogates(turn.text) for turn in result.turns]
        if result.sample is not None:
            assert line["sample"]["targets"] == [replace_surrogates(one) for one in result.sample.targets]


def test_a_line_has_the_fields_of_the_record_type():
    """The keys are those of the evaluation, then the fields of `SampleResult` in their order."""
    (line,) = lines_of([SampleResult(evaluator="accuracy", sample_id="a", verdict=Verdict.ERROR)])

    assert list(line) == [*EVALUATION_COLUMNS, *(field.name for field in dataclasses.fields(SampleResult))]


@given(st.lists(results(), max_size=3))
def test_parquet_has_what_json_lines_have(written: list[SampleResult]):
    """Each column has the value of its path in the line; what has no type of its own is JSON."""
    parquet = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    file = io.BytesIO()
    writer = ParquetWriter(file)
    writer.add(evaluation_of(written), written)
    writer.end()

    rows = parquet.read_table(io.BytesIO(file.getvalue())).to_pylist()

    for line, row in zip(lines_of(written), rows, strict=True):
        for column in columns():
            value: Any = line
            for key in column.path:
                value = None if value is None else value[key]
            got = row[column.name]
            assert (json.loads(got) if column.type == JSON and got is not None else got) == value


def test_unscored_is_null_in_both():
    """No reader can take an unscored result for a 0."""
    unscored = [SampleResult(evaluator="accuracy", sample_id="a", verdict=verdict) for verdict in UNSCORED]

    assert [line["score"] for line in lines_of(unscored)] == [None, None]
