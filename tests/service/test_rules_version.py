"""The version of the rules by which evaluations measure: what it was is recorded, and two are not mixed unasked."""

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
from crucible_worker.history import retention, rules
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import STALL, RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import HeldModel
from tests.service.patience_kit import SAMPLES, best_and_plateau, models, patient_plan, right, steps_of

PRESENT = rules.RULES_VERSION
EARLIER = PRESENT - 1

POLICY = GatePolicy(metrics=(GateMetric(key="accuracy", max_drop=0.02),))


@contextlib.contextmanager
def release_with(version: int) -> Iterator[None]:
    """What begins meanwhile is begun by a release with these rules."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rules, "RULES_VERSION", version)
        yield


def settings(**fields: Any) -> dict[str, Any]:
    """Fields of a request."""
    defaults = {
        "run_id": "run",
        "evaluators": [EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
        "dataset": SAMPLES,
        "sampling": SamplingParams(max_tokens=8),
    }
    return defaults | fields


@pytest.fixture
async def worker(tmp_path: Path):
    """A worker with a run whose steps 1 and 2 were measured by earlier rules, and 3 by the present ones."""
    async with run_worker(models(a=0.4, b=0.95, c=0.9), state_dir=tmp_path) as worker:
        for step, name in enumerate("abc", 1):
            with release_with(PRESENT if name == "c" else EARLIER):
                wanted = settings(evaluation_id=name, step=step, model=f"embedded:{name}")
                await worker.bridge.evaluation.evaluate(**wanted)
        yield worker


async def test_an_evaluation_says_by_which_rules_it_measured(worker: RunningWorker):
    """In its record, its row of the run, and its report."""
    found = {name: await worker.bridge.evaluation.get_evaluation(name) for name in "abc"}
    report = await worker.bridge.evaluation.generate_report(["a"])
    (run,) = (await worker.bridge.evaluation.list_runs()).runs
    of_run = (await worker.bridge.evaluation.list_runs(run_id="run")).checkpoints

    assert {name: one.rules_version for name, one in found.items()} == {"a": EARLIER, "b": EARLIER, "c": PRESENT}
    assert f"version {EARLIER}" in report
    assert [one.results[0].rules_version for one in of_run] == [EARLIER, EARLIER, PRESENT]
    best = [(one.evaluation_id, one.rules_version) for one in run.best if one.metric == "accuracy"]
    assert best == [("c", PRESENT), ("b", EARLIER)]


async def test_numbers_of_two_versions_are_compared_only_if_that_is_asked_for(worker: RunningWorker):
    """A comparison has a problem, a gate is inconclusive, and the best is one of the latest version."""
    evaluation = worker.bridge.evaluation
    rank_by = RankBy(metric="accuracy", goal=Goal.HIGHER)
    unasked = await evaluation.compare_evaluations(run_id="run", rank_by=rank_by, baseline_id="c")
    across = await evaluation.compare_evaluations(run_id="run", rank_by=rank_by, baseline_id="c", across_rules=True)
    gated = await evaluation.gate("a", "c", POLICY)
    gated_across = await evaluation.gate("a", "c", POLICY, across_rules=True)

    problems = [pair.problem for pair in unasked.comparisons]
    assert [problem and problem.reason for problem in problems] == ["RULES_DIFFER", "RULES_DIFFER"]
    assert (unasked.best_evaluation_id, unasked.unranked_evaluation_ids) == ("c", ("a", "b"))
    assert [pair.problem for pair in across.comparisons] == [None, None]
    assert (across.best_evaluation_id, across.unranked_evaluation_ids) == ("b", ())
    (series,) = [one for one in unasked.series if one.key == "accuracy"]
    assert [point.rules_version for point in series.points] == [EARLIER, EARLIER, PRESENT]
    assert gated.verdict is GateVerdict.INCONCLUSIVE
    assert "rules" in gated.reasons[0]
    assert gated_across.verdict is GateVerdict.PASS


async def test_the_commands_say_where_rules_differ(worker: RunningWorker, tmp_path: Path):
    """`best`, `compare`, `runs` and the data of a report name the versions, and rank across them with an option."""

    def typed(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--state-dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return result.stdout

    best = await asyncio.to_thread(typed, "best", "--run", "run", "--metric", "accuracy")
    across = await asyncio.to_thread(typed, "best", "--run", "run", "--metric", "accuracy", "--across-rules", "--json")
    compared = await asyncio.to_thread(typed, "compare", "--run", "run", "--rank-by", "accuracy")
    runs = await asyncio.to_thread(typed, "runs", "run", "--json")
    shown = await asyncio.to_thread(typed, "runs", "run")
    file = tmp_path / "report.html"
    await asyncio.to_thread(typed, "report", "--run", "run", "--format", "html", "--output", str(file))

    assert best.startswith("best: step 3, embedded:c")
    assert best.count(f"measured by rules version {EARLIER} (--across-rules ranks it)") == 2
    assert json.loads(across)["best"]["evaluation_id"] == "b"
    assert "best by accuracy: c;" in compared
    assert "not ranked, by other rules (--across-rules ranks them): a, b" in compared
    assert f'"rules_version": {EARLIER}' in runs
    assert f"rules version {EARLIER}" in " ".join(shown.split())
    assert f'"rules": "version {EARLIER}"' in file.read_text().replace('":"', '": "')


async def test_a_best_step_is_one_of_the_latest_rules(tmp_path: Path):
    """The first step by later rules begins anew; a step by earlier ones that ends later does not count."""
    shares = models(a=0.4, b=0.9, c=0.5, d=0.95, e=0.5)
    async with run_worker(shares, state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan(patience=1))
        for step, name in enumerate(shares):
            with release_with(EARLIER if name in "abd" else PRESENT):
                await worker.bridge.evaluation.notify_step("p", step, f"embedded:{name}")
                await recorder.wait_for(
                    lambda event, step=step: event.kind is EventKind.EVALUATION_STOP and event.step == step
                )
        await recorder.wait_for(lambda event: event.kind is EventKind.RUN_PLATEAU)
        found = await best_and_plateau(worker.bridge)

    assert steps_of(found) == [("best", 0), ("best", 1), ("best", 2), ("plateau", 4)]
    assert found[2].metadata["by"] == "first"
    assert found[2].measurements == {"value": 0.5, "n": 200.0, "n_scored": 200.0}


async def test_what_other_rules_have_begun_is_refused_at_resume(tmp_path: Path):
    """The error names both versions and the cure; nothing changes, and another id runs."""
    wanted = settings(evaluation_id="begun", model="embedded:held")
    held = ScriptedModel(answer=right(0.5), fingerprint="held", fault=lambda call: STALL if call.index > 4 else None)
    async with run_worker({"held": held}, state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
        with release_with(EARLIER):
            await worker.bridge.evaluation.start_evaluation(**wanted)
            await recorder.wait_for(lambda event: event.kind is EventKind.SAMPLE_COMPLETE)
    async with run_worker(models(held=0.5), state_dir=tmp_path) as worker:
        with pytest.raises(FailedPrecondition) as refused:
            await worker.bridge.evaluation.evaluate(**wanted)
        state = (await worker.bridge.evaluation.get_evaluation("begun")).state
        again = await worker.bridge.evaluation.evaluate(**settings(**wanted | {"evaluation_id": "another"}))

    assert refused.value.reason == "RULES_CHANGED"
    assert "another id" in str(refused.value)
    metadata = refused.value.metadata
    assert (metadata["rules_version"], metadata["present_rules_version"]) == (str(EARLIER), str(PRESENT))
    assert state is EvaluationState.INTERRUPTED
    assert (again.state, again.rules_version) == (EvaluationState.COMPLETED, PRESENT)


async def test_what_has_no_result_yet_takes_the_present_rules(tmp_path: Path):
    """An evaluation that was interrupted before its first sample ended."""
    held = HeldModel(answer=right(0.5), fingerprint="held")
    wanted = settings(evaluation_id="begun", model="embedded:held")
    async with run_worker({"held": held}, state_dir=tmp_path) as worker:
        with release_with(EARLIER):
            await worker.bridge.evaluation.start_evaluation(**wanted)
            await held.asked.wait()
    async with run_worker(models(held=0.5), state_dir=tmp_path) as worker:
        ended = await worker.bridge.evaluation.evaluate(**wanted)

    assert (ended.attempt, ended.rules_version) == (2, PRESENT)


async def test_an_attempt_of_a_release_without_versions_is_seen(tmp_path: Path):
    """It resumes what this release began: then the evaluation is of several versions, which is 0, and equals none."""
    async with run_worker(models(a=0.4), state_dir=tmp_path) as worker:
        for name in ("mixed", "as mixed"):
            await worker.bridge.evaluation.evaluate(**settings(evaluation_id=name, model="embedded:a"))
        with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as journal, journal:
            journal.execute("UPDATE evaluations SET attempt = attempt + 1")
        mixed = await worker.bridge.evaluation.get_evaluation("mixed")
        compared = await worker.bridge.evaluation.compare_evaluations(["mixed", "as mixed"])

    assert mixed.rules_version == 0
    assert [pair.problem and pair.problem.reason for pair in compared.comparisons] == ["RULES_DIFFER"]


async def test_the_version_is_retained_as_long_as_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Retention of evaluations leaves it with what they measured of their checkpoint; a deletion removes it."""
    async with run_worker(models(a=0.4), state_dir=tmp_path) as worker:
        with release_with(EARLIER):
            await worker.bridge.evaluation.evaluate(**settings(evaluation_id="kept", model="embedded:a"))
        await worker.bridge.evaluation.evaluate(**settings(evaluation_id="deleted", model="embedded:a"))
        await worker.bridge.evaluation.delete_evaluation("deleted")
    monkeypatch.setattr(retention, "TRIM_SECONDS", 0.05)
    limits = WorkerLimits(evaluation_retention_seconds=1e-6, retention_grace_seconds=0)
    async with run_worker(models(a=0.4), state_dir=tmp_path, limits=limits) as worker:
        while (found := (await worker.bridge.evaluation.list_runs(run_id="run")).checkpoints[0].results[0]).retained:
            await asyncio.sleep(0.05)
    with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as journal:
        rows = journal.execute("SELECT rules FROM evaluation_rules").fetchall()

    assert found.rules_version == EARLIER
    assert rows == [(EARLIER,)]
