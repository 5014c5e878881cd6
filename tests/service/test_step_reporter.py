"""What callbacks of trainers report, and what they say when a worker refuses it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.integrations.reporting import StepReporter, local_model, plan_of
from crucible_bridge.types import Dataset, EmbeddedModel, HubModel, JsonlDataset, LocalModel
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.plans_kit import plan

MODEL = EmbeddedModel("m")
WAIT = 60.0


def reporter(address: str, **fields: object) -> StepReporter:
    """A reporter of the run `run` with a plan that is due at every step."""
    made = plan(eval_every=1, infrequent_evaluations=(), infrequent_eval_every=0)
    return StepReporter(address, **{"run_id": "run", "plan": made, "root": Path("/models"), **fields})


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a minute at most."""
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0.01)


async def test_each_step_ends_with_its_metrics_once(caplog: pytest.LogCaptureFixture):
    """The last step is reported twice, the second time as the last one; its evaluation counts once."""
    caplog.set_level(logging.WARNING, "crucible_bridge.integrations")
    async with run_worker({"m": ScriptedModel()}) as worker:
        report = reporter(worker.address)
        report.begin()
        for step in (0, 1, 2):
            report.saved(step, MODEL)
        found = await asyncio.to_thread(report.finish, (2, MODEL), WAIT)
    assert sorted((one.step, *one.metrics) for one in found) == [(step, "nll") for step in (0, 1, 2)]
    assert not [one for one in caplog.records if one.name == "crucible_bridge.integrations"]


async def test_steps_before_the_worker_is_there_are_reported_later(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A step that fails with an error that may pass is reported again, in order; the failure is said once."""
    caplog.set_level(logging.WARNING, "crucible_bridge.integrations")
    socket = tmp_path / "socket"
    report = reporter(f"unix:{socket}")
    for step in (0, 1):
        report.saved(step, EmbeddedModel("arithmetic@180"))
    await until(lambda: bool(caplog.records))
    assert [one.getMessage().count(str(socket)) for one in caplog.records] == [1]

    settings = Settings(unix_socket=socket, state_dir=tmp_path / "state", grading_processes=0, code_sandboxes=0)
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        await asyncio.to_thread(report.finish, None, 0.0)
        listed = await bridge.evaluation.list_evaluations(run_id="run")
    assert [one.evaluation_id for one in listed.items] == ["p-step-1-0", "p-step-0-0"]


async def test_another_run_of_the_same_name_is_said(caplog: pytest.LogCaptureFixture):
    """Its steps have evaluations already, which are those of the first run's checkpoints."""
    caplog.set_level(logging.WARNING, "crucible_bridge.integrations")
    async with run_worker({"m": ScriptedModel()}) as worker:
        for _ in range(2):
            report = reporter(worker.address)
            report.saved(0, MODEL)
            await asyncio.to_thread(report.finish, None, WAIT)
    said = [one.getMessage() for one in caplog.records if one.name == "crucible_bridge.integrations"]
    assert said == ["p-step-0-0 is of an earlier run, and is not repeated: give this run another run_id"]


async def test_a_refused_plan_is_said_once_with_the_cure(caplog: pytest.LogCaptureFixture):
    """Another plan of the same id: no step is reported, and the end does not wait."""
    caplog.set_level(logging.WARNING, "crucible_bridge.integrations")
    async with run_worker({"m": ScriptedModel()}) as worker:
        await worker.bridge.evaluation.register_plan(plan(eval_every=7))
        report = reporter(worker.address)
        report.begin()
        report.saved(0, MODEL)
        report.saved(1, MODEL)
        found = await asyncio.to_thread(report.finish, (1, MODEL), WAIT)
    assert found == []
    said = [one.getMessage() for one in caplog.records if one.name == "crucible_bridge.integrations"]
    assert len(said) == 2
    assert said[1].startswith("nothing of this run was evaluated: the worker at 127.0.0.1:")
    assert said[0].endswith("(the run was begun with another plan: give this run another run_id)")


def test_a_checkpoint_is_named_below_the_model_root(tmp_path: Path):
    """A model by its path, an adapter with the model that it changes."""
    model, adapter = tmp_path / "run" / "checkpoint-1", tmp_path / "run" / "checkpoint-2"
    for folder, file in ((model, "config.json"), (adapter, "adapter_config.json")):
        folder.mkdir(parents=True)
        (folder / file).write_text("{}")

    assert local_model(model, tmp_path, None) == LocalModel("run/checkpoint-1")
    assert local_model(model, tmp_path / "run", LocalModel("base")) == LocalModel("checkpoint-1")
    based = local_model(adapter, tmp_path, HubModel("lab/base"))
    assert based == HubModel("lab/base", adapter_path="run/checkpoint-2")
    with pytest.raises(ValueError, match="name their model by base_model"):
        local_model(adapter, tmp_path, None)
    with pytest.raises(ValueError, match="is not below the worker's model root"):
        local_model(model, tmp_path / "other", None)
    (tmp_path / "..runs").mkdir()
    assert local_model(tmp_path / "..runs", tmp_path, None) == LocalModel("..runs")


def test_a_suite_is_a_plan_that_is_due_at_every_step(tmp_path: Path):
    """A plan is left as it is."""
    file = tmp_path / "suite.toml"
    file.write_text('name = "s"\n[[evaluations]]\nname = "e"\ndataset = "builtin:arithmetic"\nevaluators = ["nll"]\n')
    made = plan_of(file, "run-1")
    assert (made.plan_id, made.run_id, made.eval_every, len(made.evaluations)) == ("run-1", "run-1", 1, 1)
    assert plan_of(made, "run-2") is made


async def test_a_worker_that_does_not_have_the_files_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """With its address and its roots, as another one may listen there; the last line says that nothing came of it."""
    caplog.set_level(logging.WARNING, "crucible_bridge.integrations")
    roots: dict[str, Any] = {name: (tmp_path / name,) for name in ("data_roots", "model_roots")}
    for (folder,) in roots.values():
        folder.mkdir()
    settings = Settings(port=0, state_dir=tmp_path / "state", grading_processes=0, code_sandboxes=0, **roots)
    async with Worker(settings) as worker:
        address = worker.address
        made = plan(eval_every=1, infrequent_evaluations=(), infrequent_eval_every=0)
        absent = dataclasses.replace(made.evaluations[0], dataset=Dataset(source=JsonlDataset("held.jsonl")))
        refused = reporter(address, plan=dataclasses.replace(made, evaluations=(absent,)))
        refused.begin()
        await asyncio.to_thread(refused.finish, None, 0.0)
        other = reporter(address)
        other.saved(0, LocalModel("gone"))
        await asyncio.to_thread(other.finish, None, 0.0)
    said = [one.getMessage() for one in caplog.records]
    assert "names 'held.jsonl', and no data root has such a file" in said[0]
    assert f"[the worker at {address}; data roots: {tmp_path / 'data_roots'}]" in said[0]
    nothing = f"nothing of this run was evaluated: the worker at {address} has refused it, see above"
    assert [said[1], said[3]] == [nothing, nothing]
    assert f"[the worker at {address}; model roots: {tmp_path / 'model_roots'}]" in said[2]
