"""A callback for the Trainer of Lightning: a worker evaluates each checkpoint while training continues.

    def save(module, folder):
        module.model.save_pretrained(folder)
        module.tokenizer.save_pretrained(folder)

    Trainer(callbacks=[EvaluateCallback("127.0.0.1:50051", "/runs/one/evaluated", save, plan="suite.toml")])

Lightning's own `.ckpt` files are pickled, which a worker never opens. So each time Lightning saves one, `save` writes
the model in the form of Hugging Face: config, safetensors and tokenizer. The worker needs `--model-root` with the
folder of these, or a folder above it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crucible_bridge.channel import Tls
from crucible_bridge.errors import InvalidField
from crucible_bridge.integrations.reporting import (
    EvaluatedStep,
    PlanLike,
    StepReporter,
    Stopped,
    local_model,
    plan_of,
    stopping,
)
from crucible_bridge.types import EvaluationPlan, ModelRef, Patience

if TYPE_CHECKING:
    Callback: Any = object
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        try:
            from pytorch_lightning.callbacks import Callback
        except ImportError:  # without Lightning no Trainer calls it
            Callback = object

__all__ = ["EvaluateCallback", "SaveModel"]

SaveModel = Callable[[Any, Path], object]
"""Writes the model of a LightningModule into a folder that exists, in the form of Hugging Face."""


class EvaluateCallback(Callback):
    """Writes a folder for each checkpoint that a Trainer saves, and reports it to a worker, which evaluates it.

    Training does not wait for the worker, and does not fail with it: what fails is logged once, by the logger
    `crucible_bridge.integrations`. `save` is your code: its errors end the training. It is called by the first process
    alone, so it suits models that are whole there: not those that FSDP or DeepSpeed have divided.
    """

    def __init__(
        self,
        address: str,
        folder: Path | str,
        save: SaveModel,
        *,
        plan: PlanLike | None = None,
        run_id: str | None = None,
        model_root: Path | str | None = None,
        wait: float = 0.0,
        stop_on: str | Patience | None = None,
        patience: int = 3,
        token: str | None = None,
        tls: Tls | str | Path | None = None,
    ) -> None:
        """Store what to evaluate; the worker is first called when training begins.

        Args:
            address: of the worker, "host:port" or "unix:/path".
            folder: where the checkpoints for the worker are written, as `step-<step>`; it is made if it is missing.
            save: writes one.
            plan: an EvaluationPlan; or a suite or the path of its file, which is evaluated at every checkpoint. None
                if the worker's operator has named a plan for this run.
            run_id: the run; if None, that of the plan, or the name of `folder`.
            model_root: the model root of the worker, as this machine names it; if None, `folder`.
            wait: seconds to wait for the evaluations when training ends.
            stop_on: stop training once this metric has brought no better checkpoint in `patience` evaluations. Its full
                key, such as "likelihood/nll", or "nll" if one evaluation alone has it; its evaluator declares whether
                more or less is better. A Patience says all of it, with `min_delta`, `goal` and `confidence`.
            patience: how many evaluations in a row.
            token: the worker's.
            tls: see `crucible_bridge.connect`.

        Raises:
            OSError: the suite's file cannot be read.
            InvalidField: the file is not a suite, or `run_id` is not that of the plan, or there is `stop_on` and no
                plan.
        """
        super().__init__()
        if isinstance(plan, EvaluationPlan) and run_id not in (None, plan.run_id):
            raise InvalidField("run_id", f"is {run_id!r}, and that of the plan is {plan.run_id!r}: give one of them")
        self._folder, self._save, self._wait = Path(folder), save, wait
        self._root = self._folder if model_root is None else Path(model_root)
        self._run_id = run_id or self._folder.resolve().name
        self._plan = None if plan is None else plan_of(plan, self._run_id)
        self._stops = stop_on is not None
        if stop_on is not None:
            self._plan = stopping(self._plan, stop_on, patience)
        self._address, self._token, self._tls = address, token, tls
        self._reporter: StepReporter | None = None
        self._last: tuple[int, ModelRef] | None = None
        self.evaluated: list[EvaluatedStep] = []
        """The evaluations that have ended, each with its step and its metrics, as far as they are known."""
        self._saved = False
        self.stopped: Stopped | None = None
        """Why training was stopped early; None if it was not."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Register the plan."""
        if not trainer.is_global_zero:
            return
        self._last = self.stopped = None
        self._reporter = StepReporter(
            self._address,
            run_id=self._run_id,
            plan=self._plan,
            root=self._root,
            token=self._token,
            tls=self._tls,
            stops=self._stops,
            begins_at=trainer.global_step,
        )
        self._reporter.begin()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Write the model, and report it; several checkpoints of one step are one."""
        self._saved = True
        step = trainer.global_step
        if self._reporter is None or (self._last is not None and self._last[0] == step):
            return
        folder = self._folder / f"step-{step}"
        _write(folder, lambda written: self._save(pl_module, written))
        try:
            model = local_model(folder, self._root, None)
        except ValueError as error:
            self._reporter.warn(str(error))
            return
        self._last = (step, model)
        self._reporter.saved(step, model)
        self.evaluated += self._reporter.ended()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop training if no better checkpoint has come; looking for that never waits.

        Several processes decide together, at the first batch after a checkpoint was saved.
        """
        if not self._stops:
            return
        stopped: Stopped | None = None
        if self._reporter is not None:
            self._reporter.look()
            self.evaluated += self._reporter.ended()
            stopped = self._reporter.stopped
        stops = stopped is not None
        if trainer.world_size > 1:
            stops = self._saved and trainer.strategy.reduce_boolean_decision(stops, all=False)
            self._saved = False
        if stops:
            self.stopped = stopped
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Report that the last checkpoint was the last one, and wait as long as `wait` says."""
        if self._reporter is None:
            return
        reporter, self._reporter = self._reporter, None
        self.evaluated += reporter.finish(self._last, self._wait)


def _write(folder: Path, write: Callable[[Path], object]) -> None:
    """Write a folder that appears whole under its name."""
    written = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir(parents=True)
    write(written)
    shutil.rmtree(folder, ignore_errors=True)
    written.rename(folder)
