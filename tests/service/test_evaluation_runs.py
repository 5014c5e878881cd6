"""ListRuns: runs, their checkpoints, what is best, and how long that is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import (
    Checkpoint,
    EvaluationState,
    EvaluatorSpec,
    Goal,
    Limits,
    ListRunsResponse,
    SamplingParams,
)
from crucible_worker.history import lifecycle, retention
from crucible_worker.testing import RunningWorker, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import HeldModel
from tests.service.patience_kit import SAMPLES, answering, models

MODELS = models(a=0.4, b=0.9)


async def evaluate(worker: RunningWorker, evaluation_id: str, **fields: Any) -> None:
    """Evaluate model `a` by accuracy, but for what is given."""
    await worker.bridge.evaluation.evaluate(evaluation_id=evaluation_id, **settings(**fields))


def settings(**fields: Any) -> dict[str, Any]:
    """Fields of a request."""
    defaults = {
        "run_id": "run",
        "model": "embedded:a",
        "evaluators": [EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
        "dataset": SAMPLES,
        "sampling": SamplingParams(max_tokens=8),
    }
    return defaults | fields


async def checkpoints(worker: RunningWorker, run_id: str = "run") -> tuple[Checkpoint, ...]:
    """All of a run."""
    return (await worker.bridge.evaluation.list_runs(run_id=run_id)).checkpoints


async def test_the_checkpoints_of_a_run_with_all_that_was_measured():
    """By step; evaluations of one step and model are one checkpoint, on each data set the best value is marked."""
    async with run_worker(MODELS) as worker:
        await evaluate(worker, "two", step=2, model="embedded:b", labels={"lr": "2"})
        await evaluate(worker, "one", step=1, labels={"lr": "1", "trainer": "own"})
        await evaluate(worker, "half", step=1, dataset=SAMPLES[:100], labels={"lr": "1", "data": "half"})
        await evaluate(worker, "none", metric_prefix="x/")
        await evaluate(worker, "elsewhere", run_id="other", step=7)
        await evaluate(worker, "alone", run_id="")
        found = await checkpoints(worker)
        assert [(one.step, [each.evaluation_id for each in one.results]) for one in found] == [
            (None, ["none"]),
            (1, ["one", "half"]),
            (2, ["two"]),
        ]
        assert found[1].labels == {"lr": "1", "trainer": "own", "data": "half"}
        assert found[1].model_fingerprint == "a"
        one, half = found[1].results
        assert (one.metrics["accuracy"], half.metrics["accuracy"]) == (0.4, 0.8)
        assert one.dataset_fingerprint != half.dataset_fingerprint
        assert ("accuracy" in one.best, "accuracy" in half.best) == (False, True)
        assert "accuracy" in found[2].results[0].best
        assert "x/accuracy" in found[0].results[0].best

        runs = (await worker.bridge.evaluation.list_runs()).runs
        assert [run.run_id for run in runs] == ["other", "run"]
        run = runs[1]
        assert (run.first_step, run.last_step, run.checkpoints, run.completed) == (1, 2, 3, 4)
        assert run.first_unix_ns < run.last_unix_ns
        best = [each for each in run.best if each.metric == "accuracy"]
        assert [(each.evaluation_id, each.step, each.value, each.goal) for each in best] == [
            ("two", 2, 0.9, Goal.HIGHER),
            ("half", 1, 0.8, Goal.HIGHER),
        ]


async def test_states_are_counted():
    """What is at work, what was cancelled, with its reason."""
    held = HeldModel()
    async with run_worker({**MODELS, "held": held}) as worker:
        await evaluate(worker, "done", step=1)
        for name in ("stopped", "going"):
            await worker.bridge.evaluation.start_evaluation(
                evaluation_id=name, **settings(model="embedded:held", step=2)
            )
        await worker.bridge.evaluation.cancel_evaluation("stopped", "enough")
        (run,) = (await worker.bridge.evaluation.list_runs()).runs
        assert (run.completed, run.cancelled, run.unfinished, run.failed) == (1, 1, 1, 0)
        _, second = await checkpoints(worker)
        stopped = next(one for one in second.results if one.evaluation_id == "stopped")
        assert stopped.state is EvaluationState.CANCELLED
        assert stopped.problem is not None
        assert stopped.problem.message == "enough"
        held.let_go.set()


async def test_pages_have_every_run_and_every_checkpoint_once():
    """Whatever their size; a token of another call is refused."""
    async with run_worker(MODELS) as worker:
        for run in ("r1", "r2", "r3"):
            for step in (1, 2, 3):
                await evaluate(worker, f"{run}-{step}", run_id=run, step=step, dataset=SAMPLES[:2])
        for size in (1, 2, 3, 4):
            assert [run.run_id for page in await pages(worker, size) for run in page.runs] == ["r3", "r2", "r1"]
            of_run = await pages(worker, size, run_id="r2")
            assert [one.step for page in of_run for one in page.checkpoints] == [1, 2, 3]
        for run_id in (None, "r1"):
            with pytest.raises(InvalidField) as caught:
                await worker.bridge.evaluation.list_runs(run_id=run_id, page_token="x")
            assert caught.value.field == "page_token"
        with pytest.raises(NotFound, match="no evaluation is of this run"):
            await worker.bridge.evaluation.list_runs(run_id="r4")


async def pages(worker: RunningWorker, size: int, run_id: str | None = None) -> list[ListRunsResponse]:
    """All pages."""
    found: list[ListRunsResponse] = []
    token = ""
    while True:
        found.append(await worker.bridge.evaluation.list_runs(run_id=run_id, page_size=size, page_token=token))
        token = found[-1].next_page_token
        if not token:
            return found


async def test_the_blocking_client_lists_runs():
    """With the same types."""
    async with run_worker(MODELS) as worker:
        await evaluate(worker, "e", step=1)

        def listed() -> ListRunsResponse:
            with crucible_bridge.connect_sync(worker.address) as bridge:
                return bridge.evaluation.list_runs(run_id="run")

        assert await asyncio.to_thread(listed) == await worker.bridge.evaluation.list_runs(run_id="run")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks often."""
    monkeypatch.setattr(retention, "TRIM_SECONDS", 0.05)


async def test_a_value_of_few_scores_is_not_the_best():
    """Each value says what it is made of; one of less than 95 % of another's scores is not called the best."""
    few = {"few": answering(32, "few"), "most": answering(190, "most"), **MODELS}
    async with run_worker(few) as worker:
        for step, name in enumerate(few):
            limits = Limits(max_unscored_share=1.0)
            await evaluate(worker, name, step=step, model=f"embedded:{name}", limits=limits)
        found = {one.results[0].evaluation_id: one.results[0] for one in await checkpoints(worker)}
        (run,) = (await worker.bridge.evaluation.list_runs()).runs

    scored = {name: (one.scored["accuracy"].n_scored, one.scored["accuracy"].n) for name, one in found.items()}
    assert scored == {"few": (32, 200), "most": (190, 200), "a": (200, 200), "b": (200, 200)}
    assert (found["few"].metrics["accuracy"], found["most"].metrics["accuracy"]) == (1.0, 1.0)
    assert [name for name, one in found.items() if "accuracy" in one.best] == ["most"]
    (best,) = [one for one in run.best if one.metric == "accuracy"]
    assert (best.evaluation_id, best.scored) == ("most", found["most"].scored["accuracy"])


@pytest.mark.usefixtures("often")
async def test_what_was_measured_outlives_the_samples(tmp_path: Path):
    """Retention removes the evaluation and leaves its row; whoever deletes an evaluation deletes the row as well."""
    async with run_worker(MODELS, state_dir=tmp_path) as worker:
        await evaluate(worker, "old", step=1)
        await evaluate(worker, "deleted", step=2)
        await worker.bridge.evaluation.delete_evaluation("deleted")
        before = await checkpoints(worker)
        assert [one.step for one in before] == [1]
    brief = WorkerLimits(evaluation_retention_seconds=1e-6, retention_grace_seconds=0)
    async with run_worker(MODELS, state_dir=tmp_path, limits=brief) as worker:
        async with asyncio.timeout(30):
            while (await worker.bridge.evaluation.list_evaluations()).items:
                await asyncio.sleep(0.02)
        (left,) = await checkpoints(worker)
        assert not left.results[0].retained
        assert left.results[0].metrics == before[0].results[0].metrics
        assert left.results[0].scored == before[0].results[0].scored != {}
        assert left.labels == before[0].labels
    briefer = WorkerLimits(run_retention_seconds=1e-6, retention_grace_seconds=0)
    async with run_worker(MODELS, state_dir=tmp_path, limits=briefer) as worker, asyncio.timeout(30):
        while (await worker.bridge.evaluation.list_runs()).runs:
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("often")
async def test_evaluations_of_earlier_releases_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They wrote no row: the evaluation itself is read, and retention writes the row before it removes it."""
    with monkeypatch.context() as patched:
        patched.setattr(lifecycle.run_registry, "keep_measurement", lambda transaction, number: None)
        async with run_worker(MODELS, state_dir=tmp_path) as worker:
            await evaluate(worker, "e", step=1)
            before = await checkpoints(worker)
            assert before[0].results[0].metrics["accuracy"] == 0.4
    brief = WorkerLimits(evaluation_retention_seconds=1e-6, retention_grace_seconds=0)
    async with run_worker(MODELS, state_dir=tmp_path, limits=brief) as worker, asyncio.timeout(30):
        while (await worker.bridge.evaluation.list_evaluations()).items:
            await asyncio.sleep(0.02)
        (left,) = await checkpoints(worker)
        assert left.results[0].metrics == before[0].results[0].metrics
