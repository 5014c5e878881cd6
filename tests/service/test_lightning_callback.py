"""The callback for the Trainer of Lightning: with Lightning where it is installed, else called as its Trainer does."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import shutil
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.integrations.lightning import EvaluateCallback
from crucible_bridge.types import EvaluationPlan
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.server import Worker
from tests import needs

pytestmark = needs.installed("torch")

SUITE = """
name = "sums"
[[evaluations]]
name = "likelihood"
dataset = { source = "builtin:arithmetic", limit = 8 }
evaluators = ["nll"]
"""


def save(module: Any, folder: Path) -> None:
    """Write the model of a module: one that ships with the worker."""
    shutil.copytree(registry.path(module.name), folder, dirs_exist_ok=True)


def train(callback: EvaluateCallback, steps: dict[int, str], *, first: bool = True) -> None:
    """Call a callback as a Trainer does that saves two checkpoints at each step."""
    trainer = types.SimpleNamespace(is_global_zero=first, global_step=0)
    callback.on_fit_start(trainer, None)
    for step, name in steps.items():
        trainer.global_step = step
        for _ in range(2):
            callback.on_save_checkpoint(trainer, types.SimpleNamespace(name=name), {})
    callback.on_fit_end(trainer, None)


async def test_each_saved_step_is_written_and_evaluated_once(tmp_path: Path):
    """The numbers are those of the models that were written, each at its step."""
    (tmp_path / "suite.toml").write_text(SUITE)
    folder = tmp_path / "run"
    folder.mkdir()
    callback: EvaluateCallback
    async with Worker(
        Settings(port=0, state_dir=tmp_path / "state", model_roots=(folder,), grading_processes=0)
    ) as worker:
        callback = EvaluateCallback(worker.address, folder, save, plan=tmp_path / "suite.toml", wait=120)
        await asyncio.to_thread(train, callback, {10: "arithmetic@180", 20: "arithmetic@600"})

    found = {one.step: one.metrics["likelihood/nll"] for one in callback.evaluated}
    assert sorted(found) == [10, 20]
    assert found[10] > found[20]
    assert sorted(path.name for path in folder.iterdir()) == ["step-10", "step-20"]
    assert sorted(one.evaluation_id for one in callback.evaluated) == ["run-step-10-0", "run-step-20-0"]


def test_only_the_first_process_writes(tmp_path: Path):
    """The others do nothing."""
    callback = EvaluateCallback("127.0.0.1:1", tmp_path / "run", save)
    train(callback, {10: "arithmetic@180"}, first=False)
    assert not (tmp_path / "run").exists()


def test_what_the_function_raises_ends_the_training(tmp_path: Path):
    """It is the user's code; no half-written folder is left under the name of a checkpoint."""

    def fail(module: Any, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        train(EvaluateCallback("127.0.0.1:1", tmp_path / "run", fail), {10: "arithmetic@180"})
    assert not (tmp_path / "run" / "step-10").exists()


def test_a_folder_outside_of_the_model_root_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Training continues."""
    (tmp_path / "root").mkdir()
    callback = EvaluateCallback("127.0.0.1:1", tmp_path / "run", save, model_root=tmp_path / "root")
    with caplog.at_level(logging.WARNING, "crucible_bridge.integrations"):
        train(callback, {10: "arithmetic@180", 20: "arithmetic@600"})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'run'} is not below the worker's model root {tmp_path / 'root'}: give a model_root above it"
    ]


def test_a_run_id_that_is_not_that_of_the_plan_is_refused(tmp_path: Path):
    """Before training."""
    plan = EvaluationPlan(plan_id="p", run_id="one")
    with pytest.raises(InvalidField, match="run_id is 'two'"):
        EvaluateCallback("127.0.0.1:1", tmp_path, save, plan=plan, run_id="two")


class Together:
    """The strategy of two processes, which decide together: whether one of them wants to stop."""

    def __init__(self) -> None:
        self.decisions: list[bool] = []

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        assert not all
        self.decisions.append(decision)
        return decision


@pytest.mark.parametrize("processes", [1, 2])
async def test_training_stops_when_no_better_checkpoint_comes(processes: int, tmp_path: Path):
    """Checkpoints that are all alike are tied. Several processes decide together, once after each checkpoint."""
    (tmp_path / "suite.toml").write_text(SUITE)
    folder = tmp_path / "run"
    folder.mkdir()
    strategy = Together()
    trainer = types.SimpleNamespace(
        is_global_zero=True, global_step=0, world_size=processes, strategy=strategy, should_stop=False
    )
    module = types.SimpleNamespace(name="arithmetic@180")

    def fit(callback: EvaluateCallback) -> None:
        callback.on_fit_start(trainer, module)
        while not trainer.should_stop and trainer.global_step < 10_000:
            trainer.global_step += 1
            if trainer.global_step in (1, 2, 3) or trainer.global_step % 100 == 0:
                callback.on_save_checkpoint(trainer, module, {})
            callback.on_train_batch_end(trainer, module, None, None, trainer.global_step)
            threading.Event().wait(0.01)  # the time that a batch takes
        callback.on_fit_end(trainer, module)

    async with Worker(
        Settings(port=0, state_dir=tmp_path / "state", model_roots=(folder,), grading_processes=0)
    ) as worker:
        callback = EvaluateCallback(
            worker.address, folder, save, plan=tmp_path / "suite.toml", stop_on="likelihood/nll", patience=2
        )
        await asyncio.to_thread(fit, callback)
    assert trainer.should_stop
    assert callback.stopped is not None
    assert (callback.stopped.best_step, callback.stopped.last_step, callback.stopped.evaluations) == (1, 3, 2)
    if processes == 1:
        assert strategy.decisions == []
    else:
        assert strategy.decisions[-1:] == [True]
        assert len(strategy.decisions) == 3 + trainer.global_step // 100


@pytest.mark.filterwarnings("ignore")  # Lightning has warnings of its own
@needs.installed("lightning")
def test_lightnings_own_trainer_calls_it(tmp_path: Path):
    """A real fit of two steps; what it writes is what `save` wrote."""
    lightning: Any = importlib.import_module("lightning.pytorch")
    torch: Any = importlib.import_module("torch")

    class Line(lightning.LightningModule):
        name = "arithmetic@180"

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    checkpoints: Callable[..., Any] = lightning.callbacks.ModelCheckpoint
    callback = EvaluateCallback("127.0.0.1:1", tmp_path / "run", save)
    trainer = lightning.Trainer(
        max_steps=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[checkpoints(dirpath=tmp_path / "own", every_n_train_steps=1, save_top_k=-1), callback],
    )
    trainer.fit(Line(), torch.utils.data.DataLoader(torch.ones(8, 1), batch_size=4))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-1", "step-2"]
