"""The callback for the Trainer of transformers, in real training runs on the CPU."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.events import EventKind
from crucible_bridge.integrations.transformers import EvaluateCallback
from crucible_bridge.suites import load_plan, load_suite
from crucible_bridge.types import EvaluationPlan, EvaluationState
from crucible_worker.config import Settings
from crucible_worker.config.settings import RunPlan
from crucible_worker.server import Worker
from crucible_worker.testing import EventRecorder, record_events
from tests import commands, needs
from tests.service.trackers_kit import Point, trackio_points

PROGRAM = Path(__file__).with_name("training_program.py")

pytestmark = needs.installed("torch", "transformers", "accelerate")

SUITE = """
name = "sums"

[[evaluations]]
name = "likelihood"
dataset = { source = "builtin:arithmetic", limit = 16 }
evaluators = ["nll"]

[[evaluations]]
name = "answers"
dataset = { source = "builtin:arithmetic", limit = 16 }
evaluators = ["accuracy"]
sampling = { max_tokens = 8 }
"""
WAIT = 120.0
"""Seconds to wait for the evaluations of a run at most."""


@contextlib.asynccontextmanager
async def worker(folder: Path, root: Path, plans: tuple[RunPlan, ...] = ()) -> AsyncIterator[str]:
    """The address of a real worker for local models below a folder."""
    root.mkdir(parents=True, exist_ok=True)
    settings = Settings(port=0, state_dir=folder / "state", model_roots=(root,), grading_processes=0, plans=plans)
    async with Worker(settings.validate()) as running:
        yield running.address


async def train(
    folder: Path, address: str, *others: Mapping[str, Any], processes: int = 1, **options: Any
) -> tuple[list[dict[str, Any]], str]:
    """Run the program, with further trainings at the same worker; the last one's history, and what was logged."""
    first = {"output_dir": str(folder), **options}
    given = [json.dumps({"address": address, "steps": 4, "arguments": {}, **each}) for each in (first, *others)]
    together = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    command = (*(together if processes > 1 else ()), str(PROGRAM), *given)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=PIPE)
    output, logged = await process.communicate()
    assert process.returncode == 0, logged.decode()
    return json.loads(output.splitlines()[-1]), logged.decode()


def suite_in(folder: Path) -> str:
    """The path of a suite's file."""
    (folder / "suite.toml").write_text(SUITE)
    return str(folder / "suite.toml")


def evaluated(history: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Metrics of the worker in a history, by step."""
    found: dict[int, dict[str, float]] = {}
    for entry in history:
        metrics = {key: value for key, value in entry.items() if key.startswith(("likelihood/", "answers/"))}
        if metrics:
            found.setdefault(entry["step"], {}).update(metrics)
    return found


async def released(recorder: EventRecorder, step: int) -> None:
    """Wait until the evaluations of a followed checkpoint have ended."""
    await recorder.wait_for(
        lambda event: event.kind is EventKind.CHECKPOINT_RELEASED and event.metadata["name"] == f"checkpoint-{step}",
        seconds=WAIT,
    )


async def metrics_of(bridge: Bridge, run_id: str) -> dict[int, dict[str, float]]:
    """Metrics of a run's evaluations, by step; each has completed."""
    found: dict[int, dict[str, float]] = {}
    async for one in bridge.evaluation.all_evaluations(run_id=run_id):
        assert one.state is EvaluationState.COMPLETED
        assert one.request.step is not None
        found.setdefault(one.request.step, {}).update(one.metrics.values)
    return found


async def follow_logging(run: Path, suite: str, run_id: str, logger: str, variables: dict[str, str]) -> None:
    """Run `crucible-worker follow` on a run that has ended, with a logger."""
    options = (f"--suite={suite}", f"--run-id={run_id}", f"--log-to={logger}", "--exit-when-idle=0.5")
    state = f"--state-dir={run.parent / 'state-of-follow'}"
    environment = {**os.environ, **variables}
    done = await asyncio.to_thread(commands.run, "follow", run, *options, state, env=environment)
    assert done.returncode == 0, done.stderr


async def test_numbers_equal_those_of_evaluating_the_checkpoints_by_hand(tmp_path: Path):
    """And those of following the run's directory, at each step; the run is named as its folder."""
    run = tmp_path / "models" / "run-1"
    suite = suite_in(tmp_path)
    async with worker(tmp_path, tmp_path / "models") as address:
        by_hand: dict[int, dict[str, float]] = {}
        async with crucible_bridge.connect(address) as bridge, record_events(bridge) as recorder:
            # The directory is not there yet: its checkpoints are found while the Trainer saves them.
            await bridge.follow(run, load_plan(suite, plan_id="followed", run_id="followed"))
            history, logged = await train(run, address, plan=suite, model_root=str(tmp_path / "models"), wait=WAIT)
            for step in (2, 4):
                by_hand[step] = {}
                for planned in load_suite(suite).evaluations:
                    done = await bridge.evaluation.evaluate(
                        model=f"local:run-1/checkpoint-{step}",
                        evaluators=planned.evaluators,
                        dataset=planned.dataset,
                        sampling=planned.sampling,
                        metric_prefix=planned.metric_prefix,
                    )
                    by_hand[step] |= done.metrics.values
                await released(recorder, step)
            followed = await metrics_of(bridge, "followed")
            listed = await bridge.evaluation.list_evaluations(run_id="run-1")

    assert evaluated(history) == by_hand
    assert followed == by_hand
    assert by_hand[2]["likelihood/nll"] != by_hand[4]["likelihood/nll"]
    assert sorted(one.evaluation_id for one in listed.items) == [
        f"run-1-step-{step}-{part}" for step in (2, 4) for part in (0, 1)
    ]
    assert "crucible_bridge" not in logged


@pytest.mark.loggers
async def test_following_shows_the_callbacks_numbers_in_trackio_at_their_steps(tmp_path: Path):
    """Every metric of every checkpoint is there once, and nothing else."""
    run, suite = tmp_path / "models" / "run-1", suite_in(tmp_path)
    async with worker(tmp_path, tmp_path / "models") as address:
        history, _ = await train(run, address, plan=suite, model_root=str(tmp_path / "models"), wait=WAIT)
    await follow_logging(run, suite, "followed", "trackio:lab", {"TRACKIO_DIR": str(tmp_path / "trackio")})

    by_callback = evaluated(history)
    assert sorted(by_callback) == [2, 4]
    assert trackio_points(tmp_path / "trackio", "lab", "followed") == sorted(
        Point(name, step, value) for step, metrics in by_callback.items() for name, value in metrics.items()
    )


async def test_a_run_without_a_plan_gets_that_of_the_operator(tmp_path: Path):
    """A pattern of the worker fits the run's name; the callback names no plan."""
    plan = RunPlan(runs="lab-*", file=Path(suite_in(tmp_path)))
    async with worker(tmp_path, tmp_path / "lab-7", (plan,)) as address:
        # Processes that load data are forked while the callback's connection is open.
        loading = {"dataloader_num_workers": 2}
        history, _ = await train(tmp_path / "lab-7", address, arguments=loading, wait=WAIT)

    assert {step: sorted(metrics)[0] for step, metrics in evaluated(history).items()} == {
        2: "answers/accuracy",
        4: "answers/accuracy",
    }


async def test_training_ends_without_a_worker(tmp_path: Path):
    """What fails is said once, with the steps that were not reported."""
    history, logged = await train(tmp_path / "run", "127.0.0.1:1", plan=suite_in(tmp_path))

    assert evaluated(history) == {}
    assert logged.count("127.0.0.1:1") == 1
    assert "these steps were not reported to the worker: 2, 4" in logged


async def test_what_fails_is_said_once_with_the_cure(tmp_path: Path):
    """A worker with another model root, no plan at all, a folder outside of the root, and checkpoints that go away."""
    async with worker(tmp_path, tmp_path / "elsewhere") as address:
        _, logged = await train(
            tmp_path / "first",
            address,
            {"output_dir": f"{tmp_path}/run-2", "arguments": {"save_total_limit": 1}},
            {"output_dir": f"{tmp_path}/run-3", "plan": suite_in(tmp_path), "model_root": f"{tmp_path}/elsewhere"},
            plan=suite_in(tmp_path),
            wait=WAIT,
        )

    assert logged.count(f"start the worker with --model-root {tmp_path / 'first'}") == 1
    assert logged.count("give the callback a plan") == 1
    assert logged.count("save_total_limit=1 removes checkpoints") == 1
    assert logged.count("is not below the worker's model root") == 1


STOPPING: dict[str, Any] = {"steps": 2000, "arguments": {"save_steps": 4, "logging_steps": 500, "learning_rate": 0.0}}
"""A long training whose checkpoints are all alike."""


async def test_training_stops_when_no_better_checkpoint_comes(tmp_path: Path):
    """Checkpoints that are all alike are tied, so the first stays the best; the metric's prefix may be left out.

    Training that continues from a checkpoint stops at once, as the plateau is of the same run. A new training under the
    same id does not: its plateau is an earlier one.
    """
    run, suite = tmp_path / "models" / "run-1", suite_in(tmp_path)
    async with worker(tmp_path, tmp_path / "models") as address:
        given: dict[str, Any] = {"plan": suite, "model_root": str(tmp_path / "models"), "stop_on": "nll", "patience": 2}
        history, logged = await train(run, address, **STOPPING, **given)
        resumed, _ = await train(run, address, **STOPPING, **given, resume=True)
        short: dict[str, Any] = {"steps": 6, "arguments": {"save_steps": 3, "learning_rate": 0.0}}
        anew, _ = await train(run, address, **short, **given)

    stopped = history[-1]["stopped"]
    assert (stopped["metric"], stopped["best_step"], stopped["evaluations"]) == ("likelihood/nll", 4, 2)
    assert stopped["best_evaluation_id"] == "run-1-step-4-0"
    assert 12 <= history[-1]["step"] < 2000
    assert logged.count("was not improved in 2 evaluations, up to step 12: training is stopped") == 1
    assert resumed[-1]["stopped"]["best_step"] == 4
    assert resumed[-1]["step"] < 2000
    assert "stopped" not in anew[-1]


async def test_processes_that_train_together_stop_together(tmp_path: Path):
    """At a checkpoint: a process that stopped alone would leave the other one waiting."""
    run, suite = tmp_path / "models" / "run-1", suite_in(tmp_path)
    async with worker(tmp_path, tmp_path / "models") as address:
        given: dict[str, Any] = {"plan": suite, "model_root": str(tmp_path / "models"), "stop_on": "nll", "patience": 2}
        history, _ = await train(run, address, **STOPPING, **given, processes=2)
    assert history[-1]["stopped"]["best_step"] == 4
    assert history[-1]["step"] % 4 == 0
    assert history[-1]["step"] < 2000


def test_what_cannot_stop_a_training_is_refused():
    """Before it begins: without a plan the metric is unknown here."""
    with pytest.raises(InvalidField, match="stop_on needs a plan"):
        EvaluateCallback("127.0.0.1:1", stop_on="nll")
    plan = EvaluationPlan(plan_id="p", run_id="p")
    with pytest.raises(InvalidField, match="patience is 0"):
        EvaluateCallback("127.0.0.1:1", plan=plan, stop_on="nll", patience=0)
