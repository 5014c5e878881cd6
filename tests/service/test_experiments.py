"""ExperimentService at real workers: what is logged reaches the loggers once and in order."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import Code, Unavailable
from crucible_bridge.types import Dataset, EvaluationState, Limits, LoggedMetrics
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.robustness.harness import until
from tests.service.evaluation_kit import HeldModel, accuracy, asked, failing, nll, numbered, refused
from tests.service.plans_kit import plan
from tests.service.serving import Serving, serving

WAIT_SECONDS = 120.0
"""For a logger to write, on a machine that has other things to do; a bound, not an expectation."""


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[RunningWorker]:
    """A worker with a scripted model and a journal in the test's folder."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path / "state") as running:
        yield running


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of every metrics.jsonl below a folder; each is JSON."""
    return [json.loads(line) for file in folder.rglob("metrics.jsonl") for line in file.read_text().splitlines()]


def logged(folder: Path, key: str) -> list[tuple[int | None, Any]]:
    """Steps and values of a metric, in the order of the file."""
    return [(line.get("step"), line[key]) for line in lines_of(folder) if key in line]


async def test_a_loop_logs_by_a_context_manager(worker: RunningWorker):
    """Metrics, hyperparameters and texts are in the logger's files when the block has ended."""
    async with worker.bridge.experiment("run-7", log_to=["jsonl"], config={"lr": 1e-4, "path": Path("a")}) as log:
        for step in range(3):
            await log.log_metrics({"train/loss": 1 / (step + 1), "bad": math.nan}, step)
        await log.log_hparams({"seed": 1})
        await log.log_long_text("answer", "12+34=46", step=2)
        assert await log.sync(WAIT_SECONDS)
        state, url = await log.state(), await log.get_logger_url()

    (logger,) = state.loggers
    assert (logger.through_sequence, logger.missed, logger.problem) == (state.last_sequence, 0, "")
    assert url == logger.url
    assert logged(worker.state_dir, "train/loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    (config,) = worker.state_dir.rglob("config.json")
    assert json.loads(config.read_text())["config"] == {"lr": 1e-4, "path": "a", "seed": 1}


async def test_a_loop_without_an_event_loop_logs_alike(worker: RunningWorker):
    """The blocking client has the same context manager."""

    def use() -> bool:
        with (
            crucible_bridge.connect_sync(worker.address) as bridge,
            bridge.experiment("run-7", log_to=["jsonl"]) as log,
        ):
            log.log_rows([LoggedMetrics(values={"loss": float(step)}, step=step) for step in range(5)])
            return log.sync(WAIT_SECONDS)

    assert await asyncio.to_thread(use)
    assert logged(worker.state_dir, "loss") == [(step, float(step)) for step in range(5)]


async def test_what_cannot_be_logged_is_refused_by_name(worker: RunningWorker):
    """Errors name the field as the caller wrote it; nothing is half open."""
    experiments = worker.bridge.experiments
    open_ = experiments.open_experiment
    await refused(open_("e", log_to=["jsonl", "trackyo"]), Code.INVALID_ARGUMENT, "UNKNOWN_LOGGER", "log_to[1]")
    await refused(open_("e", log_to=["neptune:x"]), Code.INVALID_ARGUMENT, "UNKNOWN_LOGGER", "log_to[0]")
    await refused(open_("e", log_to=["jsonl:/tmp/x"]), Code.PERMISSION_DENIED, "LOGGER_OPTION", "log_to[0]")
    await refused(experiments.log_hparams("e", {"a": 1}), Code.NOT_FOUND, "UNKNOWN_EXPERIMENT", "experiment_id")
    await refused(experiments.sync("e"), Code.NOT_FOUND, "UNKNOWN_EXPERIMENT", "experiment_id")
    await refused(experiments.get_url("e"), Code.NOT_FOUND, "UNKNOWN_EXPERIMENT", "experiment_id")

    await open_("e", log_to=["jsonl"])
    await refused(
        experiments.log_metrics("e", [LoggedMetrics(values={})]),
        Code.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "rows[0].values",
    )
    await experiments.close_experiment("e", timeout_ms=0)
    await refused(
        experiments.log_long_text("e", "k", text="t"), Code.FAILED_PRECONDITION, "EXPERIMENT_CLOSED", "experiment_id"
    )
    assert (await open_("e")).existed
    assert await experiments.log_long_text("e", "k", text="t") > 0


async def test_an_evaluation_lands_at_its_own_step(worker: RunningWorker):
    """Late and out of order: each row has the step of its evaluation, and the family of its evaluator."""
    model = "embedded:m"
    for step in (20, 10):
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(
                evaluators=[nll(), accuracy()],
                evaluation_id=f"e-{step}",
                run_id="run-7",
                step=step,
                model=model,
                dataset=numbered(4),
                metric_prefix="test/",
                log_to=("jsonl",),
            )
        )
        assert evaluation.state is EvaluationState.COMPLETED
        assert evaluation.request.log_to == ("jsonl",)
    synced = await worker.bridge.experiments.sync("run-7", timeout_ms=int(WAIT_SECONDS * 1000))

    assert synced.synced
    lines = lines_of(worker.state_dir)
    assert [(line["step"], line["_family"]) for line in lines] == [
        (step, family) for step in (20, 10) for family in ("test/nll", "test/accuracy")
    ]
    metrics = {key: value for line in lines[2:] for key, value in line.items() if key.startswith("test/")}
    assert metrics == dict(evaluation.metrics.values)


async def test_one_that_fails_is_logged_when_another_attempt_has_completed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Once, and whole: also the evaluator that finished in the attempt that failed has no row before."""
    monkeypatch.setattr("crucible_worker.inference.retries.BACKOFF_SECONDS", 0.0)
    model = ScriptedModel(fault=failing("q0", retryable=True))
    request = asked(
        evaluators=[nll(), accuracy()],
        run_id="run-8",
        step=3,
        dataset=numbered(4),
        metric_prefix="test/",
        log_to=("jsonl",),
        limits=Limits(),
    )
    async with run_worker({"m": model}, state_dir=tmp_path) as worker:
        failed = await worker.bridge.evaluation.evaluate(request)
        model.fault = ScriptedModel().fault
        mended = await worker.bridge.evaluation.evaluate(request)
        assert (await worker.bridge.experiments.sync("run-8", timeout_ms=int(WAIT_SECONDS * 1000))).synced
    assert (failed.state, mended.state) == (EvaluationState.FAILED, EvaluationState.COMPLETED)
    assert [line["_family"] for line in lines_of(tmp_path)] == ["test/nll", "test/accuracy"]


async def test_a_logger_of_another_operator_does_not_keep_an_evaluation_from_resuming(tmp_path: Path):
    """Of a recorded request it is left out, and the worker's own one is used; a call that names it is refused."""
    place = f"jsonl:{tmp_path / 'theirs'}"
    (tmp_path / "data.jsonl").write_text('{"id": "a", "input": "a", "target": "A"}\n')
    dataset = Dataset.of("jsonl:data.jsonl")
    model = HeldModel()
    async with run_worker({"m": model}, state_dir=tmp_path / "state", data_roots=[tmp_path], log_to=[place]) as worker:
        await worker.bridge.evaluation.start_evaluation(asked(dataset=dataset))
        await model.asked.wait()
    async with run_worker(
        {"m": ScriptedModel()}, state_dir=tmp_path / "state", data_roots=[tmp_path], log_to=["jsonl"]
    ) as worker:
        again = worker.bridge.evaluation.evaluate(asked(dataset=dataset, log_to=(place,)))
        await refused(again, Code.PERMISSION_DENIED, "LOGGER_OPTION", "log_to[0]")
        await worker.bridge.evaluation.resume_evaluation("e")
        resumed = await worker.bridge.evaluation.evaluate(asked(dataset=dataset))
    assert (resumed.state, resumed.attempt) == (EvaluationState.COMPLETED, 2)
    assert resumed.request.log_to == ("jsonl",)


async def watched(bridge: Bridge, evaluation_id: str) -> None:
    """Wait until an evaluation has ended."""
    async for _ in bridge.evaluation.watch_evaluation(evaluation_id):
        pass


async def test_a_plan_with_a_logger_that_is_refused_is_refused(worker: RunningWorker):
    """The error names the entry in the plan, and nothing is registered; nor is an evaluation started."""
    calls = worker.bridge.evaluation
    await refused(calls.register_plan(plan(log_to=("neptune",))), Code.INVALID_ARGUMENT, "UNKNOWN_LOGGER", "log_to[0]")
    await refused(calls.notify_step("p", 3, "embedded:m"), Code.NOT_FOUND, "UNKNOWN_PLAN", "plan_id")
    await refused(calls.evaluate(asked(log_to=("x",))), Code.INVALID_ARGUMENT, "UNKNOWN_LOGGER", "log_to[0]")
    await refused(calls.get_evaluation("e"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


async def test_a_worker_has_loggers_for_requests_that_name_none(tmp_path: Path):
    """`--log-to` may name any place, and requests may name it too; plans and experiments get it as well."""
    place = f"jsonl:{tmp_path / 'logged'}"
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path / "state", log_to=[place]) as worker:
        await worker.bridge.evaluation.evaluate(asked(evaluation_id="e", step=1))
        await worker.bridge.evaluation.register_plan(plan(run_id="run", log_to=(place,)))
        (started,) = await worker.bridge.evaluation.notify_step("p", 3, "embedded:m")
        await watched(worker.bridge, started.evaluation.evaluation_id)
        await worker.bridge.experiments.open_experiment("x")
        for name in ("e", "run", "x"):
            (logger,) = (await worker.bridge.experiments.sync(name, timeout_ms=60_000)).experiment.loggers
            assert logger.logger == place


async def test_a_failed_evaluation_logs_nothing(worker: RunningWorker):
    """Without metrics there is no row, and no experiment is opened for it."""
    request = asked(evaluation_id="e", model="embedded:m", log_to=("jsonl",), dataset=numbered(2))
    await worker.bridge.evaluation.start_evaluation(request)
    await worker.bridge.evaluation.cancel_evaluation("e")
    ended = await worker.bridge.evaluation.get_evaluation("e")
    if ended.state is EvaluationState.CANCELLED:
        await refused(worker.bridge.experiments.sync("e"), Code.NOT_FOUND, "UNKNOWN_EXPERIMENT", "experiment_id")


async def test_a_logger_that_fails_stops_no_other(worker: RunningWorker, tmp_path: Path):
    """Its problem is told, and its entries wait; the other logger has everything, and evaluations end."""
    blocked = worker.state_dir / "experiments"
    blocked.write_text("no folder")
    async with run_worker({}, state_dir=worker.state_dir, log_to=[f"jsonl:{tmp_path / 'works'}"]) as other:
        await other.bridge.experiments.open_experiment("e", log_to=["jsonl", f"jsonl:{tmp_path / 'works'}"])
        await worker.bridge.experiments.log_metrics("e", [LoggedMetrics(values={"loss": 1.0}, step=1)])
        await until(lambda: logged(tmp_path / "works", "loss"), WAIT_SECONDS)

        async def problem() -> bool:
            found = await worker.bridge.experiments.sync("e", timeout_ms=0)
            return bool(found.experiment.loggers[0].problem) and not found.synced

        await until(problem, WAIT_SECONDS)
        blocked.unlink()
        synced = await worker.bridge.experiments.sync("e", timeout_ms=int(WAIT_SECONDS * 1000))

    assert synced.synced
    assert [logger.problem for logger in synced.experiment.loggers] == ["", ""]
    assert logged(worker.state_dir, "loss") == [(1, 1.0)]


async def test_beyond_the_bound_a_logger_reports_what_it_missed(tmp_path: Path):
    """The journal keeps no more than it may; the logger says how many entries are missing, and goes on."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "experiments").write_text("no folder")
    limits = WorkerLimits(max_experiment_bytes=1_000)
    async with (
        run_worker({}, state_dir=state, limits=limits) as worker,
        worker.bridge.experiment("e", log_to=["jsonl"]) as log,
    ):
        for step in range(100):
            await log.log_metrics({"loss": float(step)}, step)
        (state / "experiments").unlink()
        assert await log.sync(WAIT_SECONDS)
        (logger,) = (await log.state()).loggers

    steps = [step for step, _ in logged(state, "loss") if step is not None]
    assert steps == sorted(steps)
    assert steps[-1] == 99
    assert logger.missed >= 100 - len(steps) > 0
    texts = [line for file in state.rglob("texts.jsonl") for line in file.read_text().splitlines()]
    assert any("missed" in line for line in texts)


class Steps:
    """Logs a row for each step, fifty in a call."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self._next = 0

    async def log(self, address: str) -> None:
        """Log to a worker until it is gone."""
        async with crucible_bridge.connect(address) as bridge:
            try:
                await bridge.experiments.open_experiment("e", log_to=["jsonl"])
                while True:
                    # A call that is not answered may have been logged: its steps are not used again.
                    steps = range(self._next, self._next + 50)
                    self._next += 50
                    rows = [LoggedMetrics(values={"loss": float(step)}, step=step) for step in steps]
                    await bridge.experiments.log_metrics("e", rows)
                    self.acknowledged += steps
            except Unavailable:
                return

    async def log_until_killed(self, worker: Serving, calls: int) -> None:
        """Log to a worker, and kill it after so many answers."""
        logging = asyncio.create_task(self.log(worker.address))
        wanted = len(self.acknowledged) + 50 * calls
        await until(lambda: len(self.acknowledged) >= wanted or logging.done(), WAIT_SECONDS)
        worker.process.kill()
        await logging


async def kills(folder: Path, rounds: int) -> None:
    """Log to a worker that is killed again and again; every acknowledged row is there once, in order."""
    logging = Steps()
    for number in range(rounds):
        async with serving(folder / str(number), "grading_processes = 0\n", state_dir=folder / "state") as worker:
            await logging.log_until_killed(worker, 1 + number % 7)
    async with run_worker({}, state_dir=folder / "state") as last:
        closed = await last.bridge.experiments.close_experiment("e", timeout_ms=int(WAIT_SECONDS * 1000))
        assert closed.synced
    steps = [step for step, _ in logged(folder / "state", "loss") if step is not None]
    assert len(steps) == len(set(steps))
    assert steps == sorted(steps)
    assert set(logging.acknowledged) <= set(steps)


async def test_a_killed_worker_loses_nothing_that_it_acknowledged(tmp_path: Path):
    """SIGKILL in the middle of logging: the next worker's logger continues, exactly once."""
    await kills(tmp_path, 3)


@pytest.mark.torture
async def test_a_hundred_kills_lose_nothing(tmp_path: Path):
    """The same a hundred times."""
    await kills(tmp_path, 100)
