"""Inspect's `.eval` file, read with Python's zipfile and json; tests/inspect reads it with Inspect."""

from __future__ import annotations

import io
import json
import math
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import Problem, SampleResult, Verdict
from crucible_worker.exports.eval_file import Archive, EvalFileWriter, LaterMember
from crucible_worker.reports.plain_json import replace_surrogates
from tests.tables import rows
from tests.unit.exports.results import evaluation_of, results


def archive_of(written: list[SampleResult]) -> bytes:
    """The file of an evaluation with these results."""
    file = io.BytesIO()
    evaluation = evaluation_of(written)
    with tempfile.TemporaryDirectory() as folder:
        writer = EvalFileWriter(file, evaluation, version="1", folder=Path(folder))
        for result in written:  # page by page
            writer.add(evaluation, [result])
        writer.end()
        writer.close()
    return file.getvalue()


def members_of(data: bytes) -> dict[str, Any]:
    """Its members, by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def entries_of(data: bytes) -> list[dict[str, Any]]:
    """Its samples, in order."""
    return [entry for name, entry in members_of(data).items() if name.startswith("samples/")]


def result_of(sample_id: str = "a", evaluator: str = "accuracy", **fields: Any) -> SampleResult:
    """A result."""
    return SampleResult(
        **{"verdict": Verdict.CORRECT, "score": 1.0, "evaluator": evaluator, "sample_id": sample_id, **fields}
    )


@given(st.lists(results(), max_size=4, unique_by=lambda result: replace_surrogates(result.sample_id)))
def test_what_a_sample_has_survives(written: list[SampleResult]):
    """Every result is an entry with its texts, its score or NaN, and a summary; half a surrogate pair is U+FFFD."""
    members = members_of(archive_of(written))
    entries = {entry["id"]: entry for name, entry in members.items() if name.startswith("samples/")}

    assert set(entries) == {replace_surrogates(result.sample_id) for result in written}
    assert [one["id"] for one in members["summaries.json"]] == [replace_surrogates(one.sample_id) for one in written]
    for result in written:
        entry = entries[replace_surrogates(result.sample_id)]
        score = entry["scores"]["accuracy"]
        assert entry["epoch"] == result.repeat + 1
        assert score["value"] == result.score if result.score is not None else math.isnan(score["value"])
        assert score["answer"] == (replace_surrogates(result.extracted) or None)
        if result.output:
            assert entry["output"]["completion"] == replace_surrogates(result.output)
        if result.sample is not None:
            targets = [replace_surrogates(target) for target in result.sample.targets]
            assert entry["target"] in (targets, *targets, "")
            assert entry["metadata"] == {
                replace_surrogates(key): replace_surrogates(value) for key, value in result.sample.metadata.items()
            }


@rows("verdict", [verdict for verdict in Verdict if not verdict.scored])
def test_unscored_is_never_a_number(verdict: Verdict):
    """An unscored result has NaN, which Inspect leaves out of metrics, with its reason."""
    problem = Problem(reason="GRADER_FAILED", message="it died")
    (entry,) = entries_of(archive_of([result_of(verdict=verdict, score=None, problem=problem)]))

    score = entry["scores"]["accuracy"]
    assert math.isnan(score["value"])
    assert (score["reason"], score["explanation"]) == ("GRADER_FAILED", "GRADER_FAILED: it died")
    assert ("error" in entry) == (verdict is Verdict.ERROR)


def test_evaluators_are_scores_and_repeats_are_epochs():
    """The results of a sample and a repeat are one entry with a score of each evaluator."""
    written = [
        result_of("a", "accuracy", output="four"),
        result_of("a", "accuracy", repeat=1, output="five", score=0.0, verdict=Verdict.INCORRECT),
        result_of("a", "nll", verdict=Verdict.MEASURED, score=0.25),
        result_of("b", "accuracy"),
    ]

    members = members_of(archive_of(written))

    shown = [
        (each["id"], each["epoch"], {name: score["value"] for name, score in each["scores"].items()})
        for name, each in members.items()
        if name.startswith("samples/")
    ]
    assert shown == [
        ("a", 1, {"accuracy": 1.0, "nll": 0.25}),
        ("a", 2, {"accuracy": 0.0}),
        ("b", 1, {"accuracy": 1.0}),
    ]
    header = members["header.json"]
    assert header["eval"]["dataset"]["samples"] == 2
    assert header["eval"]["config"]["epochs"] == 2
    assert header["results"]["total_samples"] == 3


def test_equal_results_are_equal_files():
    """Nothing of the time or the machine is in the file."""
    assert archive_of([result_of()]) == archive_of([result_of()])


@rows("count", [0, 1, 65_534, 65_535, 65_536])
def test_an_archive_has_every_member(count: int, tmp_path: Path):
    """With more members than 16 bits count, the archive is of the form that counts in 64."""
    file = io.BytesIO()
    archive, later = Archive(file, tmp_path), LaterMember(tmp_path)
    for number in range(count):
        archive.add(f"samples/{number}é.json", b"%d" % number)
    later.write(b"par")
    later.write(b"ts")
    archive.append("later", later)
    archive.end()
    archive.close()
    later.close()

    with zipfile.ZipFile(file) as opened:
        names = opened.namelist()
        assert names == [*(f"samples/{number}é.json" for number in range(count)), "later"]
        assert opened.read("later") == b"parts"
        for number in {0, count // 2, count - 1} & set(range(count)):
            assert opened.read(f"samples/{number}é.json") == b"%d" % number
