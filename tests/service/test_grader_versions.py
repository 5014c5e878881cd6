"""The versions of graders: what judged an evaluation is recorded, and two versions are not mixed unasked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    EvaluationState,
    EvaluatorSpec,
    GateMetric,
    GatePolicy,
    GateVerdict,
    Goal,
    RankBy,
    SamplingParams,
)
from crucible_worker.cli import app
from crucible_worker.grading.registry import GRADERS
from crucible_worker.history import retention
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import STALL, RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.patience_kit import SAMPLES, models, right

PRESENT = GRADERS["exact_match"].version
EARLIER = PRESENT - 1

POLICY = GatePolicy(metrics=(GateMetric(key="accuracy", max_drop=0.02),))
RANK_BY = RankBy(metric="accuracy", goal=Goal.HIGHER)
ACCURACY = EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})


@contextlib.contextmanager
def release_with(version: int, grader: str = "exact_match") -> Iterator[None]:
    """What begins meanwhile is begun by a release with this version of a grader."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GRADERS[grader], "version", version)
        yield


def settings(**fields: Any) -> dict[str, Any]:
    """Fields of a request."""
    defaults = {
        "run_id": "run",
        "evaluators": [ACCURACY],
        "dataset": SAMPLES,
        "sampling": SamplingParams(max_tokens=8),
    }
    return defaults | fields


def forget_graders(folder: Path, *ids: str) -> None:
    """Make evaluations those of a release that recorded no versions of graders."""
    with contextlib.closing(sqlite3.connect(folder / JOURNAL_FILE)) as journal, journal:
        for name in ids:
            numbered = "(SELECT number FROM evaluations WHERE evaluation_id = ?)"
            journal.execute(f"DELETE FROM evaluation_graders WHERE number = {numbered}", (name,))


@pytest.fixture
async def worker(tmp_path: Path):
    """A worker with a run: step 1 of an older release, step 2 by an earlier version of the grader, step 3 by this."""
    async with run_worker(models(a=0.97, b=0.95, c=0.9), state_dir=tmp_path) as worker:
        for step, name in enumerate("abc", 1):
            with release_with(PRESENT if name == "c" else EARLIER):
                wanted = settings(evaluation_id=name, step=step, model=f"embedded:{name}")
                await worker.bridge.evaluation.evaluate(**wanted)
        forget_graders(tmp_path, "a")
        yield worker


async def test_an_evaluation_says_which_versions_judged(worker: RunningWorker):
    """In its record, its row of the run, and its report; an older release has recorded none."""
    evaluation = worker.bridge.evaluation
    found = {name: (await evaluation.get_evaluation(name)).graders for name in "abc"}
    report = await evaluation.generate_report(["c"])
    (run,) = (await evaluation.list_runs()).runs
    of_run = (await evaluation.list_runs(run_id="run")).checkpoints

    assert found["a"] == {}
    assert [dict(found[name]["accuracy"].versions) for name in "bc"] == [{"exact_match": 1}, {"exact_match": PRESENT}]
    assert f"exact_match version {PRESENT}" in report
    versions = [one.results[0].graders for one in of_run]
    assert [dict(each["accuracy"].versions) if each else {} for each in versions] == [
        {},
        {"exact_match": EARLIER},
        {"exact_match": PRESENT},
    ]
    best = [(one.evaluation_id, dict(one.grader_versions)) for one in run.best if one.metric == "accuracy"]
    assert best == [("c", {"exact_match": PRESENT}), ("a", {})]


async def test_verdicts_of_two_versions_are_compared_only_if_that_is_asked_for(worker: RunningWorker):
    """A comparison has a problem that names the grader, a gate is inconclusive, and the best is of the latest one."""
    evaluation = worker.bridge.evaluation
    unasked = await evaluation.compare_evaluations(run_id="run", rank_by=RANK_BY, baseline_id="c")
    across = await evaluation.compare_evaluations(run_id="run", rank_by=RANK_BY, baseline_id="c", across_rules=True)
    alike = await evaluation.compare_evaluations(["a", "b"], rank_by=RANK_BY)
    gated = await evaluation.gate("a", "c", POLICY)
    gated_across = await evaluation.gate("a", "c", POLICY, across_rules=True)

    problems = [pair.problem for pair in unasked.comparisons]
    assert [problem and problem.reason for problem in problems] == ["RULES_DIFFER", "RULES_DIFFER"]
    assert problems[0] is not None
    assert problems[1] is not None
    assert f"exact_match of an older release, the baseline by exact_match version {PRESENT}" in problems[0].message
    assert "judged by exact_match version 1" in problems[1].message
    assert (unasked.best_evaluation_id, unasked.unranked_evaluation_ids) == ("c", ("a", "b"))
    assert [pair.problem for pair in across.comparisons] == [None, None]
    assert (across.best_evaluation_id, across.unranked_evaluation_ids) == ("a", ())
    assert [pair.problem for pair in alike.comparisons] == [None]
    assert gated.verdict is GateVerdict.INCONCLUSIVE
    assert "exact_match" in gated.reasons[0]
    assert gated_across.verdict is not GateVerdict.INCONCLUSIVE
    (series,) = [one for one in unasked.series if one.key == "accuracy"]
    assert [dict(point.grader_versions) for point in series.points][1:] == [
        {"exact_match": 1},
        {"exact_match": PRESENT},
    ]


async def test_a_grader_whose_verdicts_did_not_change_is_compared_with_older_releases(tmp_path: Path):
    """Each grader of an older release is of the first version, as those are that have not changed since."""
    evaluators = [EvaluatorSpec(kind="accuracy", options={"grader": "regex"})]
    async with run_worker(models(a=0.4, b=0.5), state_dir=tmp_path) as worker:
        for name in "ab":
            wanted = settings(evaluation_id=name, evaluators=evaluators, model=f"embedded:{name}")
            await worker.bridge.evaluation.evaluate(**wanted)
        forget_graders(tmp_path, "a")
        compared = await worker.bridge.evaluation.compare_evaluations(["a", "b"])

    assert GRADERS["regex"].version == 1
    assert [pair.problem for pair in compared.comparisons] == [None]


async def test_the_commands_say_where_graders_differ(worker: RunningWorker, tmp_path: Path):
    """`best` and `compare` name the versions, and rank across them with an option; `show` and JSON have them."""

    def typed(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--state-dir", str(tmp_path)], env={"COLUMNS": "300"})
        assert result.exit_code == 0, result.output
        return result.stdout

    best = await asyncio.to_thread(typed, "best", "--run", "run", "--metric", "accuracy")
    across = await asyncio.to_thread(typed, "best", "--run", "run", "--metric", "accuracy", "--across-rules", "--json")
    compared = await asyncio.to_thread(typed, "compare", "--run", "run", "--rank-by", "accuracy")
    runs = await asyncio.to_thread(typed, "runs", "run")
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    await asyncio.to_thread(typed, "report", "--run", "run", "--format", "json", "--output", str(report))
    await asyncio.to_thread(typed, "report", "--run", "run", "--format", "html", "--output", str(page))

    assert best.startswith("best: step 3, embedded:c")
    assert "measured by exact_match of an older release (--across-rules ranks it)" in best
    assert "measured by exact_match version 1 (--across-rules ranks it)" in best
    assert json.loads(across)["best"]["evaluation_id"] == "a"
    assert "not ranked, by other versions of graders (--across-rules ranks them): a, b" in compared
    graders = [one["graders"] for one in json.loads(report.read_text())["evaluations"]]
    assert graders == [{}, {"accuracy": {"exact_match": 1}}, {"accuracy": {"exact_match": PRESENT}}]
    assert "exact_match of an older release" in " ".join(runs.split())
    assert f"exact_match version {PRESENT}" in page.read_text()


@pytest.mark.parametrize("recorded", [True, False])
async def test_what_another_version_has_begun_is_refused_at_resume(tmp_path: Path, recorded: bool):
    """The error names the grader and both versions, also if an older release began; another id runs."""
    wanted = settings(evaluation_id="begun", model="embedded:held")
    held = ScriptedModel(answer=right(0.5), fingerprint="held", fault=lambda call: STALL if call.index > 4 else None)
    async with run_worker({"held": held}, state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
        with release_with(EARLIER):
            await worker.bridge.evaluation.start_evaluation(**wanted)
            await recorder.wait_for(lambda event: event.kind is EventKind.SAMPLE_COMPLETE)
    if not recorded:
        forget_graders(tmp_path, "begun")
    async with run_worker(models(held=0.5), state_dir=tmp_path) as worker:
        with pytest.raises(FailedPrecondition) as refused:
            await worker.bridge.evaluation.evaluate(**wanted)
        state = (await worker.bridge.evaluation.get_evaluation("begun")).state
        again = await worker.bridge.evaluation.evaluate(**settings(**wanted | {"evaluation_id": "another"}))

    assert refused.value.reason == "RULES_CHANGED"
    assert dict(refused.value.metadata) == {
        "grader": "exact_match",
        "grader_version": "1" if recorded else "",
        "present_grader_version": str(PRESENT),
    }
    assert ("of an older release" in str(refused.value)) is not recorded
    assert (state, again.state) == (EvaluationState.INTERRUPTED, EvaluationState.COMPLETED)


async def test_an_attempt_of_an_older_release_is_seen(tmp_path: Path):
    """It resumes what this release began: then the verdicts are of several versions, which equal none."""
    async with run_worker(models(a=0.4), state_dir=tmp_path) as worker:
        for name in ("mixed", "whole"):
            await worker.bridge.evaluation.evaluate(**settings(evaluation_id=name, model="embedded:a"))
        with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as journal, journal:
            sql = "UPDATE evaluations SET attempt = attempt + 1 WHERE evaluation_id = 'mixed'"
            journal.execute(sql)
            journal.execute("UPDATE evaluation_rules SET rules = 2")
        mixed = await worker.bridge.evaluation.get_evaluation("mixed")
        compared = await worker.bridge.evaluation.compare_evaluations(["mixed", "whole"])

    assert dict(mixed.graders["accuracy"].versions) == {"exact_match": 0}
    (pair,) = compared.comparisons
    assert pair.problem is not None
    assert "exact_match of several versions" in pair.problem.message


async def test_the_versions_are_retained_as_long_as_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Retention of evaluations leaves them with what was measured of the checkpoint; a deletion removes them."""
    async with run_worker(models(a=0.4), state_dir=tmp_path) as worker:
        for name in ("kept", "deleted"):
            await worker.bridge.evaluation.evaluate(**settings(evaluation_id=name, model="embedded:a"))
        await worker.bridge.evaluation.delete_evaluation("deleted")
    monkeypatch.setattr(retention, "TRIM_SECONDS", 0.05)
    limits = WorkerLimits(evaluation_retention_seconds=1e-6, retention_grace_seconds=0)
    async with run_worker(models(a=0.4), state_dir=tmp_path, limits=limits) as worker:
        while (found := (await worker.bridge.evaluation.list_runs(run_id="run")).checkpoints[0].results[0]).retained:
            await asyncio.sleep(0.05)
    with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as journal:
        rows = journal.execute("SELECT graders FROM evaluation_graders").fetchall()

    assert dict(found.graders["accuracy"].versions) == {"exact_match": PRESENT}
    assert [json.loads(text) for (text,) in rows] == [{"accuracy": {"exact_match": PRESENT}}]


async def test_every_grader_of_an_evaluator_is_recorded(tmp_path: Path):
    """That of the form, too, each evaluator by its name."""
    evaluators = [
        EvaluatorSpec(kind="accuracy", name="plain"),
        EvaluatorSpec(kind="rl_test_set", name="rl", options={"grader": "numeric", "format_grader": "regex"}),
    ]
    async with run_worker(models(a=0.4), state_dir=tmp_path) as worker:
        ended = await worker.bridge.evaluation.evaluate(
            **settings(evaluation_id="a", evaluators=evaluators, model="embedded:a")
        )

    assert {label: dict(found.versions) for label, found in ended.graders.items()} == {
        "plain": {"exact_match": PRESENT},
        "rl": {"numeric": GRADERS["numeric"].version, "regex": 1},
    }
