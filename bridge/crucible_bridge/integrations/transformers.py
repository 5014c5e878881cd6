"""A callback for the Trainer of transformers: a worker evaluates each checkpoint while training continues.

    trainer = Trainer(
        model=model, args=args, train_dataset=data, processing_class=tokenizer,
        callbacks=[EvaluateCallback("127.0.0.1:50051", plan="suite.toml")],
    )

The worker needs `--model-root` with the Trainer's `output_dir`, or a folder above it.
"""

from __future__ import annotations

import dataclasses
import importlib
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
from crucible_bridge.types import EvaluationPlan, HubModel, LocalModel, ModelRef, Patience, parse_model

if TYPE_CHECKING:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
else:
    try:
        from transformers import TrainerCallback
    except ImportError:  # without transformers no Trainer calls it
        TrainerCallback = object

__all__ = ["EvaluateCallback"]


class EvaluateCallback(TrainerCallback):
    """Reports each checkpoint that a Trainer saves to a worker, which evaluates it.

    Training does not wait for the worker, and does not fail with it: what fails is logged once, by the logger
    `crucible_bridge.integrations`. Metrics are in `trainer.state.log_history` at the step of their checkpoint.
    """

    def __init__(
        self,
        address: str,
        *,
        plan: PlanLike | None = None,
        run_id: str | None = None,
        model_root: Path | str | None = None,
        base_model: str | LocalModel | HubModel | None = None,
        wait: float = 0.0,
        stop_on: str | Patience | None = None,
        patience: int = 3,
        token: str | None = None,
        tls: Tls | str | Path | None = None,
    ) -> None:
        """Store what to evaluate; the worker is first called when training begins.

        Args:
            address: of the worker, "host:port" or "unix:/path".
            plan: an EvaluationPlan; or a suite or the path of its file, which is evaluated at every checkpoint. None
                if the worker's operator has named a plan for this run.
            run_id: the run; if None, that of the plan, or the name of the Trainer's `output_dir`.
            model_root: the model root of the worker, as this machine names it; if None, the Trainer's `output_dir`.
            base_model: the model of LoRA adapters, such as "local:base" or "hub:OWNER/NAME".
            wait: seconds to wait for the evaluations when training ends.
            stop_on: stop training once this metric has brought no better checkpoint in `patience` evaluations. Its full
                key, such as "likelihood/nll", or "nll" if one evaluation alone has it; its evaluator declares whether
                more or less is better. A Patience says all of it, with `min_delta`, `goal` and `confidence`.
            patience: how many evaluations in a row.
            token: the worker's.
            tls: see `crucible_bridge.connect`.

        Raises:
            OSError: the suite's file cannot be read.
            InvalidField: the file is not a suite, or `run_id` is not that of the plan, or `base_model` is not a model,
                or there is `stop_on` and no plan.
        """
        self._address, self._token, self._tls = address, token, tls
        # Read here, before training: the name of the run replaces this one when training begins.
        self._plan = None if plan is None else plan_of(plan, run_id or "run")
        self._stops = stop_on is not None
        if stop_on is not None:
            self._plan = stopping(self._plan, stop_on, patience)
        self._of_suite = self._plan is not None and not isinstance(plan, EvaluationPlan)
        if isinstance(plan, EvaluationPlan) and run_id not in (None, plan.run_id):
            raise InvalidField("run_id", f"is {run_id!r}, and that of the plan is {plan.run_id!r}: give one of them")
        self._run_id, self._given_root = run_id, model_root
        self._base = _base_of(base_model)
        self._wait = wait
        self._reporter: StepReporter | None = None
        self._root = Path()
        self._last: tuple[int, ModelRef] | None = None
        self.stopped: Stopped | None = None
        """Why training was stopped early; None if it was not."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Register the plan."""
        if not state.is_world_process_zero:
            return
        folder = Path(_folder(args))
        run_id = self._run_id or folder.resolve().name
        plan = self._plan
        if plan is not None and self._of_suite:
            plan = dataclasses.replace(plan, plan_id=run_id, run_id=run_id)
        self._root = folder if self._given_root is None else Path(self._given_root)
        self._last = self.stopped = None
        self._reporter = StepReporter(
            self._address,
            run_id=run_id,
            plan=plan,
            root=self._root,
            token=self._token,
            tls=self._tls,
            stops=self._stops,
            begins_at=state.global_step,
        )
        self._reporter.begin()
        if args.save_total_limit is not None:
            self._reporter.warn(
                f"save_total_limit={args.save_total_limit} removes checkpoints, maybe before they are evaluated; such "
                "evaluations fail. Raise the limit, or use `crucible-worker follow`, which holds checkpoints"
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop training if no better checkpoint has come; looking for that never waits."""
        if not self._stops or self._reporter is None:
            return
        self._reporter.look()
        _record(state, self._reporter.ended())
        if args.world_size == 1:
            self._stop(self._reporter.stopped, control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report the checkpoint that was saved; several processes decide here together whether to stop."""
        self._report(args, state)
        if self._stops and args.world_size > 1:
            self._stop(_of_first_process(None if self._reporter is None else self._reporter.stopped), control)

    def _stop(self, stopped: Stopped | None, control: TrainerControl) -> None:
        if stopped is not None:
            self.stopped = stopped
            control.should_training_stop = True

    def _report(self, args: TrainingArguments, state: TrainerState) -> None:
        if self._reporter is None:
            return
        folder = Path(_folder(args), f"checkpoint-{state.global_step}")
        try:
            model = local_model(folder, self._root, self._base)
        except ValueError as error:
            self._reporter.warn(str(error))
            return
        self._last = (state.global_step, model)
        self._reporter.saved(*self._last)
        _record(state, self._reporter.ended())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report that the last checkpoint was the last one, and wait as long as `wait` says."""
        if self._reporter is None:
            return
        reporter, self._reporter = self._reporter, None
        _record(state, reporter.finish(self._last, self._wait))


def _of_first_process(stopped: Stopped | None) -> Stopped | None:
    """What the first process knows, in every process: one that stops alone would leave the others waiting for it."""
    distributed = importlib.import_module("torch.distributed")
    if not (distributed.is_available() and distributed.is_initialized()):
        return stopped
    told = [stopped]
    distributed.broadcast_object_list(told, src=0)
    return told[0]


def _base_of(given: str | LocalModel | HubModel | None) -> LocalModel | HubModel | None:
    model = parse_model(given) if isinstance(given, str) else given
    if model is not None and not isinstance(model, LocalModel | HubModel):
        raise InvalidField("base_model", f"is {given!r}, not a model to which an adapter is applied: local: or hub:")
    return model


def _folder(args: TrainingArguments) -> str:
    """The folder of the checkpoints; a Trainer has one at the latest when it is made."""
    assert args.output_dir is not None
    return args.output_dir


def _record(state: TrainerState, ended: list[EvaluatedStep]) -> None:
    """Add metrics to the Trainer's history, at their own steps."""
    state.log_history.extend({"step": one.step, **one.metrics} for one in ended if one.metrics)
