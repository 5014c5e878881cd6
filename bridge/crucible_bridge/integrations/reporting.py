"""Reports the checkpoints of a training loop to a worker, so that the loop neither waits nor fails.

All calls are made by one separate thread, in the order of the checkpoints. What fails is logged once for each
reason, with the cure. A step that cannot be reported now is reported with the next one.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crucible_bridge.channel import Tls
from crucible_bridge.client import BlockingBridge, connect_sync
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.suites import Suite, load_suite
from crucible_bridge.types import Evaluation, EvaluationPlan, EvaluationState, HubModel, LocalModel, ModelRef, Patience

__all__ = ["EvaluatedStep", "PlanLike", "StepReporter", "Stopped", "local_model", "plan_of", "stopping"]

REGISTER_SECONDS = 600.0
"""How long a worker may read the data sets of a plan, when the plan is registered."""
CALL_SECONDS = 30.0
"""How long any other call may take."""
FLUSH_SECONDS = 10.0
"""How long the end of training tries to report what is not reported yet, also where it does not wait for results."""
LOOK_SECONDS = 1.0
"""Time between two looks for a plateau, while training continues."""
POLL_SECONDS = 0.5
"""Time between two looks at the evaluations, while the end of training waits for them."""

PlanLike = EvaluationPlan | Suite | Path | str
"""A plan; or a suite, or the file of one, which is evaluated at every checkpoint."""

ROOTS = ("data_roots", "model_roots")
"""Facts of errors: the folders below which a worker has looked for a file."""

_ENDED = frozenset({EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED})

_CURES: Mapping[str, str] = {
    Reason.MODEL_NOT_FOUND: "start the worker with --model-root {root}, or name the worker's folder by model_root",
    Reason.UNKNOWN_PLAN: "give the callback a plan, or name a plan for this run in the worker's file: [[plans]]",
    Reason.OTHER_PLAN: "the run was begun with another plan: give this run another run_id",
    Reason.OTHER_MODEL: "an earlier run reported this step: give this run another run_id",
    Reason.NO_TOKENIZER: "save the tokenizer with the checkpoint: Trainer(processing_class=tokenizer)",
}
"""What helps, by reason; `root` is the folder of the checkpoints."""

_log = logging.getLogger("crucible_bridge.integrations")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedStep:
    """An evaluation that has ended."""

    step: int
    """The step of its checkpoint."""
    evaluation_id: str
    """For the worker's other calls."""
    metrics: Mapping[str, float]
    """Its metrics; empty if it failed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why training was stopped early: no better checkpoint has come."""

    metric: str
    """Full key of the metric."""
    best_step: int
    """The step of the best checkpoint."""
    best_evaluation_id: str
    """Its evaluation."""
    best_value: float
    """Its value of the metric."""
    last_step: int
    """The step of the last one that was compared with it."""
    evaluations: int
    """How many in a row were not better."""

    def __str__(self) -> str:
        """A sentence for people."""
        return (
            f"{self.metric} of step {self.best_step} ({self.best_value:.6g}) was not improved in {self.evaluations} "
            f"evaluations, up to step {self.last_step}: training is stopped"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    step: int
    model: ModelRef
    last: bool


def plan_of(given: PlanLike, run_id: str) -> EvaluationPlan:
    """A plan for a run: the given one, or one that evaluates a suite at every reported step.

    Raises:
        OSError: the file cannot be read.
        InvalidField: the file is not a suite.
    """
    if isinstance(given, EvaluationPlan):
        return given
    suite = given if isinstance(given, Suite) else load_suite(given)
    return EvaluationPlan(plan_id=run_id, run_id=run_id, eval_every=1, evaluations=suite.evaluations)


def stopping(plan: EvaluationPlan | None, stop_on: str | Patience, patience: int) -> EvaluationPlan:
    """The plan with what training is stopped on.

    Args:
        plan: None if the worker's operator has it.
        stop_on: a metric, better as its evaluator declares it; or all of what decides.
        patience: evaluations in a row without a better one, if `stop_on` is a metric.

    Raises:
        InvalidField: there is no plan, or no patience.
    """
    if plan is None:
        raise InvalidField("stop_on", "needs a plan: give `plan`, such as the file of a suite")
    if isinstance(stop_on, str):
        if patience < 1:
            raise InvalidField("patience", f"is {patience}, must be at least 1")
        stop_on = Patience(metric=stop_on, patience=patience)
    return dataclasses.replace(plan, patience=stop_on)


def local_model(folder: Path, root: Path, base: LocalModel | HubModel | None) -> ModelRef:
    """A reference to a checkpoint, as a worker with a model root knows it.

    Args:
        folder: of the checkpoint: a model, or a LoRA adapter.
        root: a model root of the worker.
        base: the model of an adapter; only its adapter changes.

    Raises:
        ValueError: the folder is not below the root, or is an adapter and its base is not given.
    """
    path = os.path.relpath(folder.resolve(), root.resolve())
    if path.split(os.sep)[0] == os.pardir:
        raise ValueError(f"{folder.parent} is not below the worker's model root {root}: give a model_root above it")
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        if base is None:
            raise ValueError(f"{folder.parent} has adapters: name their model by base_model, such as 'local:base'")
        return dataclasses.replace(base, adapter_path=path)
    return LocalModel(path)


class StepReporter:
    """Reports the steps of one run. `finish` ends it."""

    def __init__(
        self,
        address: str,
        *,
        run_id: str,
        plan: EvaluationPlan | None,
        root: Path,
        token: str | None = None,
        tls: Tls | str | Path | None = None,
        stops: bool = False,
        begins_at: int = 0,
    ) -> None:
        """Prepare the thread; nothing is called yet.

        Args:
            address: of the worker.
            run_id: the plan's id, if the worker's operator named the plan.
            plan: registered before the first step; None if the operator named one.
            root: folder of the checkpoints, for messages.
            token: of the worker.
            tls: see `connect`.
            stops: look for a plateau of the plan, for `stopped`.
            begins_at: step of the checkpoint with which training continues; the run's plateaus up to it count.
        """
        self.stopped: Stopped | None = None
        """Set once no better checkpoint has come for as long as the plan says; only with `stops`."""
        self._address = address
        self._connect: Callable[[], BlockingBridge] = lambda: connect_sync(address, token=token, tls=tls)
        self._plan, self._plan_id = plan, run_id if plan is None else plan.plan_id
        self._root = root
        self._began_ns = time.time_ns()
        # The fields below belong to the thread.
        self._bridge: BlockingBridge | None = None
        self._registered, self._refused, self._dropped = plan is None, False, False
        self._unsent: collections.deque[_Saved] = collections.deque()
        self._running: dict[str, int] = {}
        self._known: set[str] = set()
        self._said: set[str] = set()
        self._stops, self._run_id, self._resumed, self._step = stops, run_id, begins_at > 0, begins_at
        self._looked_through: int | None = None
        self._plateau: Event | None = None
        # These cross between both.
        self._looking, self._looked = threading.Event(), -LOOK_SECONDS
        self._ended: queue.SimpleQueue[EvaluatedStep] = queue.SimpleQueue()
        self._left = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crucible-evaluate")

    def begin(self) -> None:
        """Register the plan."""
        self._thread.submit(self._guarded, self._send)

    def saved(self, step: int, model: ModelRef) -> None:
        """Report a checkpoint."""
        self._thread.submit(self._guarded, lambda: self._report(_Saved(step=step, model=model, last=False)))

    def look(self) -> None:
        """Look for a plateau soon, unless the thread is at work or has just looked; never waits."""
        if not self._stops or self.stopped is not None or self._looking.is_set():
            return
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looking.set()
            self._thread.submit(self._guarded, self._watch)

    def warn(self, message: str) -> None:
        """Log a message, unless it was logged before."""
        self._thread.submit(self._guarded, lambda: self._say(message, message))

    def ended(self) -> list[EvaluatedStep]:
        """The evaluations that have ended since the previous call, as far as the thread knows; never waits."""
        found: list[EvaluatedStep] = []
        while True:
            try:
                found.append(self._ended.get_nowait())
            except queue.Empty:
                return found

    def finish(self, last: tuple[int, ModelRef] | None, wait: float) -> list[EvaluatedStep]:
        """Report the end of training, and wait for the evaluations.

        Args:
            last: step and model of the last checkpoint; None if there is none.
            wait: seconds to wait for the evaluations at most.

        Returns:
            As `ended`.
        """
        saved = None if last is None else _Saved(step=last[0], model=last[1], last=True)
        ending = self._thread.submit(self._guarded, lambda: self._finish(saved, wait))
        try:
            ending.result()
        finally:
            # An interrupt of the wait ends the thread's wait as well.
            self._left.set()
            self._thread.shutdown(wait=False)
        return self.ended()

    def _guarded(self, work: Callable[[], None]) -> None:
        """A loop that trains must not end because of a report."""
        try:
            work()
        except BridgeError as error:
            self._say_error(error)
        except Exception:  # a bug: it is logged with its traceback
            _log.exception("a checkpoint was not reported to the worker")

    def _report(self, saved: _Saved) -> None:
        self._unsent.append(saved)
        self._step = max(self._step, saved.step)
        self._send()
        self._collect()

    def _finish(self, saved: _Saved | None, wait: float) -> None:
        began = time.monotonic()
        if saved is not None:
            self._unsent.append(saved)
        try:
            while True:
                self._guarded(self._send)
                self._guarded(self._collect)
                # A step that is not reported yet may be, once the connection is there.
                patience = max(wait, FLUSH_SECONDS) if self._unsent else wait if self._running else 0.0
                remaining = began + patience - time.monotonic()
                if self._refused or remaining <= 0:
                    break
                if self._left.wait(min(POLL_SECONDS, remaining)):
                    break
            self._say_left()
        finally:
            if self._bridge is not None:
                self._bridge.close()

    def _say_left(self) -> None:
        """What the end of training leaves."""
        if (self._refused or self._dropped) and not self._known:
            _log.warning("nothing of this run was evaluated: the worker at %s has refused it, see above", self._address)
        if self._unsent and not self._refused:
            steps = ", ".join(dict.fromkeys(str(saved.step) for saved in self._unsent))
            _log.warning("these steps were not reported to the worker: %s", steps)
        if self._running:
            _log.info("%d evaluations of %s have not ended; the worker continues", len(self._running), self._plan_id)

    def _connected(self) -> BlockingBridge:
        if self._bridge is None:
            self._bridge = self._connect()
        return self._bridge

    def _send(self) -> None:
        """Register the plan, and report what is not reported yet; stops at what may succeed later."""
        try:
            if not self._registered and not self._refused and self._plan is not None:
                self._connected().evaluation.register_plan(self._plan, timeout=REGISTER_SECONDS)
                self._registered = True
        except BridgeError as error:
            self._refused = not error.retryable
            raise
        if self._stops and self._looked_through is None:
            self._look_for_plateau()
        while self._unsent and self._registered:
            saved = self._unsent[0]
            try:
                started = self._connected().evaluation.notify_step(
                    self._plan_id, saved.step, saved.model, last=saved.last, timeout=CALL_SECONDS
                )
            except BridgeError as error:
                if error.retryable:
                    raise
                self._say_error(error)
                self._dropped = True
            else:
                for one in started:
                    self._take(one.evaluation, saved.step)
            self._unsent.popleft()

    def _watch(self) -> None:
        try:
            self._collect()
            self._look_for_plateau()
        finally:
            self._looked = time.monotonic()
            self._looking.clear()

    def _look_for_plateau(self) -> None:
        """Read the events of the plan since the last look; those before training count only if it was resumed."""
        if not self._registered:
            return
        first = self._looked_through is None
        kinds = (EventKind.RUN_BEST, EventKind.RUN_PLATEAU)
        stream = self._connected().telemetry.subscribe(
            self._looked_through or 0, kinds=kinds, run_id=self._run_id, until_now=True
        )
        for event in stream:
            if event.metadata.get("plan_id") == self._plan_id and (self._resumed or not first):
                self._plateau = event if event.kind is EventKind.RUN_PLATEAU else None
        self._looked_through = stream.through_sequence
        plateau = self._plateau
        if plateau is None or (plateau.step or 0) > self._step:  # a later one is that of an earlier training
            return
        self.stopped = Stopped(
            metric=plateau.metadata["metric"],
            best_step=int(plateau.metadata["best_step"]),
            best_evaluation_id=plateau.metadata["best_evaluation_id"],
            best_value=plateau.measurements["value"],
            last_step=plateau.step or 0,
            evaluations=int(plateau.measurements["evaluations"]),
        )
        self._say("stopped", str(self.stopped))

    def _take(self, evaluation: Evaluation, step: int) -> None:
        evaluation_id = evaluation.evaluation_id
        if evaluation_id in self._known:  # the last step is reported twice
            return
        self._known.add(evaluation_id)
        self._running[evaluation_id] = step
        if evaluation.ended_unix_ns and evaluation.ended_unix_ns < self._began_ns:
            self._say(
                "earlier", f"{evaluation_id} is of an earlier run, and is not repeated: give this run another run_id"
            )

    def _collect(self) -> None:
        """Look which evaluations have ended."""
        for evaluation_id, step in tuple(self._running.items()):
            evaluation = self._connected().evaluation.get_evaluation(evaluation_id, timeout=CALL_SECONDS)
            if evaluation.state not in _ENDED:
                continue
            del self._running[evaluation_id]
            if evaluation.problem is not None:
                problem = evaluation.problem
                self._say(problem.reason, f"{evaluation_id} {evaluation.state.value}: {problem.message}")
            metrics = dict(evaluation.metrics.values)
            for key, why in () if metrics else evaluation.metrics.undefined.items():
                self._say(why, f"{evaluation_id} has no {key}: {why}")
            self._ended.put(EvaluatedStep(step=step, evaluation_id=evaluation_id, metrics=metrics))

    def _say_error(self, error: BridgeError) -> None:
        message = str(error)
        # Another process may have the port: the user's own worker has other roots.
        facts = [f"{key.replace('_', ' ')}: {error.metadata[key]}" for key in ROOTS if error.metadata.get(key)]
        if self._address not in message:
            facts.insert(0, f"the worker at {self._address}")
        self._say(str(error.reason), f"{message} [{'; '.join(facts)}]" if facts else message)

    def _say(self, key: str, message: str) -> None:
        if key in self._said:
            return
        self._said.add(key)
        cure = _CURES.get(key)
        _log.warning("%s%s", message, "" if cure is None else f" ({cure.format(root=self._root)})")
