"""Samples as CSV."""

import csv
import io
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import Problem, Sample, SampleResult, Usage, Verdict
from crucible_worker.cli.samples import CSV_COLUMNS, csv_cell, csv_row, write_csv
from tests.tables import rows

RESULT = SampleResult(
    evaluator="accuracy",
    sample_id="a",
    verdict=Verdict.INCORRECT,
    score=-1.5,
    output="=1+1",
    output_tokens=3,
    duration_ns=1_500_000_000,
    problem=Problem(reason="NO_TARGET", message="+ no target"),
    usage=Usage(prompt_tokens=5, output_tokens=3, calls=1),
    sample=Sample(id="a", input="@SUM(1)", targets=("-3",), metadata={"level": "easy"}),
)


def test_a_row_has_the_result_and_its_record():
    """In stable columns; numbers stay numbers, and texts that would be formulas become texts."""
    assert dict(zip(CSV_COLUMNS, csv_row(RESULT), strict=True)) == {
        "sample_id": "a",
        "evaluator": "accuracy",
        "repeat": 0,
        "verdict": "incorrect",
        "score": -1.5,
        "input": "'@SUM(1)",
        "targets": "'-3",
        "output": "'=1+1",
        "extracted": "",
        "method": "",
        "reason": "NO_TARGET",
        "message": "'+ no target",
        "stop_reason": RESULT.stop_reason,
        "prompt_tokens": 5,
        "output_tokens": 3,
        "seconds": 1.5,
        "metadata": '{"level": "easy"}',
    }


@rows(
    ("text", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("  =1", "'  =1"),
        ("\t1", "'\t1"),
        ("\r=1", "'\n=1"),
        ("\n=1", "'\n=1"),
        ("\uff1d1", "'\uff1d1"),
        ("\x00=1", "\ufffd=1"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("1+1=2", "1+1=2"),
        ("\ud800", "?"),
        ("", ""),
    ],
)
def test_formulas_are_made_harmless(text: str, written: str):
    """Whatever precedes them; other texts stay as they are, and each can be written as UTF-8."""
    assert csv_cell(text) == written


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_begins_a_formula(text: str):
    """And what is written is read back as it was written."""
    written = csv_cell(text)
    assert isinstance(written, str)
    assert not written.lstrip().startswith(("=", "+", "-", "@"))
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([written, "end"])
    (found,) = csv.reader(io.StringIO(stream.getvalue(), newline=""))
    assert found == [written, "end"]


class _Nowhere(io.StringIO):
    def write(self, text: str) -> int:
        return len(text)


async def test_rows_are_written_as_they_arrive():
    """Ten times as many samples take no more memory."""

    async def results(count: int) -> AsyncIterator[SampleResult]:
        for _ in range(count):
            yield RESULT

    peaks: list[int] = []
    for count in (500, 500, 5_000):
        tracemalloc.start()
        await write_csv(_Nowhere(), results(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[2] == pytest.approx(peaks[1], abs=100_000)
