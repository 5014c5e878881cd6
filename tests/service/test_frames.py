"""`crucible_bridge.frames`: results as frames of pandas and polars, of a worker and of a journal."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge import frames
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import EvaluatorSpec, Sample, SamplingParams
from crucible_worker.grading.registry import GRADERS
from crucible_worker.reading import open_journal
from crucible_worker.testing import ScriptedModel, run_worker
from tests import needs
from tests.tables import rows

pytestmark = pytest.mark.core

SAMPLES = [Sample(id=f"s{n}", input=f"in {n}", targets=("IN 1" if n % 2 else "IN 0",)) for n in range(4)]
MODELS = {"upper": ScriptedModel(), "one": ScriptedModel(answer=lambda prompt: "IN 1")}
KINDS = {
    "pandas": {"text": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"},
    "polars": {"text": "String", "integer": "Int64", "number": "Float64", "boolean": "Boolean"},
}
TIMES = {"pandas": "datetime64[ns, UTC]", "polars": "Datetime(time_unit='ns', time_zone='UTC')"}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with two evaluations of a run, and one of no run that nothing could score."""

    async def evaluate(folder: Path) -> None:
        async with run_worker(MODELS, state_dir=folder) as worker:
            graded = EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})
            without_targets = [Sample(id="s0", input="in 0")]
            for evaluation_id, step, model, samples in (
                ("e1", 1, "one", SAMPLES),
                ("e2", 2, "upper", SAMPLES),
                ("none", None, "one", without_targets),
            ):
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=evaluation_id,
                    run_id="" if step is None else "run",
                    step=step,
                    model=f"embedded:{model}",
                    evaluators=[graded],
                    dataset=samples,
                    sampling=SamplingParams(max_tokens=8),
                )

    folder = tmp_path_factory.mktemp("journal")
    asyncio.run(evaluate(folder))
    return folder


def as_rows(frame: Any) -> list[dict[str, Any]]:
    """A frame's rows, with None in place of what is null."""
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        return frame.to_dicts()
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def made(name: str, bridge: crucible_bridge.BlockingBridge, library: frames.Library) -> Any:
    """One of the frames, of all that the journal has."""
    match name:
        case "evaluations":
            return frames.evaluations(bridge, library=library)
        case "metrics":
            return frames.metrics(bridge, library=library)
        case "samples":
            return frames.samples(bridge, ["e1", "none"], library=library)
    return frames.comparisons(bridge, run_id="run", library=library)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_and_types_are_those_that_are_declared(journal: Path, library: frames.Library):
    """In each frame, and in one without rows."""
    pytest.importorskip(library, reason=needs.MISSING[library])
    with open_journal(journal) as bridge:
        found = {name: made(name, bridge, library) for name in frames.COLUMNS}
        empty = frames.metrics(bridge, run_id="of nothing", library=library)

    types = {**KINDS[library], "time": TIMES[library]}
    for name, frame in [*found.items(), ("metrics", empty)]:
        expected = {column: types[kind] for column, (kind, _) in frames.COLUMNS[name].items()}
        told = frame.dtypes if library == "pandas" else frame.schema
        assert {column: str(kind) for column, kind in told.items()} == expected, name
        assert len(frame) == 0 or frame is not empty


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_what_is_missing_is_null(journal: Path, library: frames.Library):
    """A step, a score, a metric, and the tokens and prices that no server reports."""
    pytest.importorskip(library, reason=needs.MISSING[library])
    with open_journal(journal) as bridge:
        by_id = {row["evaluation_id"]: row for row in as_rows(made("evaluations", bridge, library))}
        measured = {(row["evaluation_id"], row["metric"]): row for row in as_rows(made("metrics", bridge, library))}
        unscored = [row for row in as_rows(made("samples", bridge, library)) if row["evaluation_id"] == "none"]

    assert [by_id["none"][name] for name in ("run_id", "step", "cost", "superseded", "labels")] == [None] * 5
    assert (by_id["e1"]["step"], by_id["e1"]["superseded"]) == (1, False)
    assert by_id["e1"]["created"] <= by_id["e1"]["ended"]
    accuracy = measured["none", "accuracy"]
    assert (accuracy["value"], accuracy["n"], accuracy["n_scored"]) == (None, 1, 0)
    assert accuracy["undefined"]
    assert [(row["score"], row["reason"]) for row in unscored] == [(None, "UNDECIDED")]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_numbers_are_those_of_the_worker(journal: Path, library: frames.Library):
    """Each rate with what it is made of; a comparison has the paired difference of the same samples."""
    pytest.importorskip(library, reason=needs.MISSING[library])
    with open_journal(journal) as bridge:
        metrics = as_rows(frames.metrics(bridge, run_id="run", library=library))
        samples = as_rows(frames.samples(bridge, "e1", evaluator="accuracy", library=library))
        (compared,) = as_rows(frames.comparisons(bridge, ["e1", "e2"], library=library))

    curve = [(row["step"], row["value"], row["n"], row["n_scored"]) for row in metrics if row["metric"] == "accuracy"]
    # "in 2" and "in 3" have targets that neither model says in upper case.
    assert curve == [(1, 0.5, 4, 4), (2, 0.5, 4, 4)]
    assert {row["grader_versions"] for row in metrics} == {json.dumps({"exact_match": GRADERS["exact_match"].version})}
    assert [(row["sample_id"], row["score"], row["output"]) for row in samples[:2]] == [
        ("s0", 0.0, "IN 1"),
        ("s1", 1.0, "IN 1"),
    ]
    assert [json.loads(row["targets"]) for row in samples[:2]] == [["IN 0"], ["IN 1"]]
    named = ("baseline_id", "evaluation_id", "baseline_step", "step", "n_matched", "n_improved", "n_regressed")
    assert [compared[name] for name in named] == ["e1", "e2", 1, 2, 4, 1, 1]
    assert compared["difference"] == 0.0
    assert compared["n_clusters"] is None


async def test_a_worker_and_its_journal_give_the_same_frames(tmp_path: Path):
    """Read by a client of an address, or by one that opens the journal."""
    pandas = pytest.importorskip("pandas", reason=needs.MISSING["pandas"])

    def read(address: str) -> Any:
        with crucible_bridge.connect_sync(address) as bridge:
            return frames.samples(bridge, "e")

    async with run_worker(MODELS, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.evaluate(
            evaluation_id="e",
            model="embedded:one",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
        )
        of_worker = await asyncio.to_thread(read, worker.address)

    def read_journal() -> Any:
        with open_journal(tmp_path) as bridge:
            return frames.samples(bridge, "e")

    pandas.testing.assert_frame_equal(of_worker, await asyncio.to_thread(read_journal))


def test_the_report_is_shown_in_a_frame_of_its_own(journal: Path):
    """The page as it is, escaped: no script of it runs outside, and it has no more samples than wanted."""
    with open_journal(journal) as bridge:
        charts = frames.plots(bridge, run_id="run", title='a "title"', max_samples=1)
        with pytest.raises(InvalidField, match="must be at least 1"):
            frames.plots(bridge, run_id="run", max_samples=0)

    shown = charts._repr_html_()
    assert charts.page.startswith("<!doctype html>")
    assert "e2" in charts.page
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown.count("<") == 2


def test_what_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path, journal: Path):
    """No journal, no such evaluation, no such library."""
    with pytest.raises(NotFound, match="has no journal"):
        open_journal(tmp_path)
    with open_journal(journal) as bridge:
        with pytest.raises(NotFound):
            frames.samples(bridge, "nothing")
        with pytest.raises(InvalidField, match="must be 'pandas' or 'polars'"):
            frames.evaluations(bridge, library="numpy")  # pyright: ignore[reportArgumentType]


@rows("name", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_with_its_cure(journal: Path, name: frames.Library, monkeypatch):
    """The extra installs it."""
    monkeypatch.setitem(sys.modules, name, None)

    with (
        open_journal(journal) as bridge,
        pytest.raises(ImportError, match=rf"{name} is not.*crucible-bridge\[frames\]"),
    ):
        frames.evaluations(bridge, library=name)
