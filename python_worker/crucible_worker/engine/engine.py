r"""One attempt at an evaluation: runs its samples, with bounded concurrency, until they are done or it is stopped.

    is prepared -> waits for its turn -> runs what has no final verdict -> ends, in one transaction
                \-> is stopped: by a cancel, its deadline, a stall, a drain, or a journal that cannot be written

While it is paused no sample begins, and its time does not count; see `scheduler`.

Each evaluator is aggregated, and its end is reported, as soon as its last sample is committed: `evaluator_progress`.

The first cause of an end counts. From that moment the gate lets no model call through, and no result is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

import structlog

from crucible_bridge.errors import BridgeError, Cancelled
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationState,
    EvaluatorResult,
    Metrics,
    ModelPrice,
    ModelRef,
    Problem,
    ServerEngine,
    Usage,
)
from crucible_worker.backends.base import Model
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.engine import claims, controls
from crucible_worker.engine.auxiliary_models import confirm_weights, full_fingerprint, name_of
from crucible_worker.engine.budgets import CostBudget, RunBudgets, read_budget, writing
from crucible_worker.engine.claims import EvaluationOwners
from crucible_worker.engine.controls import INTERRUPTS, Control, Ending, Stopped, control_of, stopped_by
from crucible_worker.engine.evaluator_progress import EvaluatorProgress, items_left, recorded_spans
from crucible_worker.engine.phases import Phase
from crucible_worker.engine.preparation import Plan, Prepare
from crucible_worker.engine.sample_runner import close_processes, get_ready
from crucible_worker.engine.scheduler import SampleScheduler, Throttle
from crucible_worker.engine.usage import Spent
from crucible_worker.history import lifecycle
from crucible_worker.inference.retries import ModelOutages, Outage, RetryPolicy, gone
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.queries import EvaluationRow, find_by_number, runs_before, spent_before
from crucible_worker.util.fingerprints import is_full
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import TimeoutQueue, retrieve_error

__all__ = ["KEEP_TIME_SECONDS", "PROGRESS_SECONDS", "STOP_SECONDS", "Attempt"]

PROGRESS_SECONDS = 0.25
"""Shortest time between two EVALUATION_PROGRESS."""
KEEP_TIME_SECONDS = 1.0
"""How often the active time is written while nothing else is."""
STOP_SECONDS = 0.05
"""How long a stopped attempt waits for its cancelled calls before it ends without them."""

_log = structlog.get_logger(__name__)


class Attempt:
    """An attempt that this worker owns; call `start` once, then wait for `finished`."""

    def __init__(
        self,
        journal: Journal,
        locks: EvaluationOwners,
        row: EvaluationRow,
        request: EvaluateRequest,
        plan: Plan | Prepare,
        *,
        turns: asyncio.Semaphore,
        limits: WorkerLimits,
        worker_id: str,
        received: float,
        prices: tuple[ModelPrice, ...] = (),
        run_budgets: RunBudgets | None = None,
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded.
            locks: this worker's; `row.number` is locked.
            row: the evaluation as it was claimed.
            request: what to run, with the limits of this attempt and the deadline of the first.
            plan: evaluators, samples and model if the claim knows them; otherwise the function that finds them.
            turns: a semaphore of as many places as evaluations may run at once.
            limits: the worker's.
            worker_id: the worker's.
            received: time of receipt by `time.monotonic`.
            prices: of models.
            run_budgets: of this worker's attempts.
        """
        self.row = row
        self.running = False
        """Whether its turn has come."""
        self.model: Model | None = None
        """The evaluated model, once it is found."""
        self.finished = asyncio.Event()
        """Set when the attempt has ended, and its end is committed or cannot be."""
        self._journal, self._locks, self._request = FencedJournal(journal, locks, row.number), locks, request
        self._plan: Plan  # from the beginning, or once `_prepare` has found it
        self._prepare: Prepare | None = None
        self._run: SampleScheduler | None = None
        if isinstance(plan, Plan):
            self._plan, self.model = plan, plan.model
        else:
            self._prepare = plan
        self._turns, self._limits, self._worker_id = turns, limits, worker_id
        self._throttle = Throttle(
            Control.of(row),
            asked=request.limits.concurrency or limits.default_concurrency,
            most=limits.max_concurrency,
            since=received,
        )
        self._deadline: asyncio.TimerHandle | None = None
        self._timeouts = TimeoutQueue()
        outages = ModelOutages(self, self._timeouts, seconds=limits.outage_seconds, name_of=self._name_of)
        self._gate = RetryPolicy(row.total, outages)
        self._prices, self._run_budgets = prices, RunBudgets() if run_budgets is None else run_budgets
        self._budget: CostBudget | None = None
        self._continuing: asyncio.Task[None] | None = None
        self._changes = 0
        self._has_turn = False
        self._comparing: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._spent = Spent()
        self._stall_seconds = _seconds(request.limits.stall_timeout_ms, limits.default_stall_timeout_seconds)

    @property
    def taken(self) -> tuple[ModelRef, Usage | None]:
        """The model, and this attempt's usage of it and of judges, as far as that is committed."""
        return self._request.model, None if self._run is None else self._run.spent.here

    @property
    def caller(self) -> Caller | None:
        """The caller that it needs to stay connected, if there is one."""
        return None if self.model is None else self._plan.caller

    @property
    def phase(self) -> Phase:
        """What it does now."""
        if self.model is None:
            return Phase.READING
        waiting = 0 if self._budget is None else self._budget.waiting
        at_work = 0 if self._run is None else self._run.at_work
        if self._throttle.paused and self._gate.asking <= waiting and at_work <= waiting:
            return Phase.PAUSED
        if not self.running:
            return Phase.WAITING
        if not self._last_progress:
            return Phase.LOADING
        return Phase.ASKING if self._gate.asking else Phase.GRADING

    @property
    def _last_progress(self) -> float:
        """0 until the first sample can start: neither waiting nor loading is a stall."""
        return 0.0 if self._run is None else self._run.samples.last_progress

    @property
    def waits_for_model(self) -> bool:
        """Whether it waits for a model that does not answer at all."""
        return bool(self._away)

    @property
    def ending(self) -> Ending | None:
        """What stopped it, if anything did."""
        return self._stopped.result().ending if self._stopped.done() else None

    def model_away(self, outage: Outage) -> None:
        """See `OutageListener`."""
        number, away, error = self.row.number, [one.waiting_for for one in self._away], outage.message
        self._write(lambda transaction: controls.begin_wait(transaction, number, away, error))

    def model_back(self, outage: Outage) -> None:
        """See `OutageListener`."""
        if self._run is not None:  # an outage is no stall
            self._run.samples.progressed()
        number, others = self.row.number, [other.waiting_for for other in self._away]
        self._write(lambda transaction: controls.end_wait(transaction, number, outage.waiting_for, others))

    def model_gone(self, outage: Outage) -> None:
        """See `OutageListener`."""
        self.stop(Ending.OUTAGE, gone(outage, self._limits.outage_seconds))

    @property
    def _away(self) -> Sequence[Outage]:
        return () if self._gate.outages is None else tuple(self._gate.outages.now.values())

    def _name_of(self, model: Model) -> str:
        """What a model of the plan is called."""
        return name_of(model, self._plan, self._request.model)

    def _write(self, write: Callable[[Transaction], None]) -> None:
        """Write beside the work; an error of the journal ends the attempt."""
        self._journal.submit(write).add_done_callback(self._written)

    def _written(self, written: asyncio.Future[None]) -> None:
        if not written.cancelled() and (error := written.exception()) is not None:
            self.fail(error)

    def start(self, on_finished: Callable[[], object]) -> None:
        """Begin; `on_finished` is called just before `finished` is set."""
        self._on_finished = on_finished
        self._task = asyncio.create_task(self._run_to_end(), name=f"evaluation-{self.row.number}")

    def stop(self, ending: Ending, problem: Problem) -> None:
        """End it; the first call counts. No model call starts after this."""
        if not self._stopped.done():
            self._gate.close()
            if self._run is not None:
                self._run.close()
            self._stopped.set_result(Stopped(ending, problem))

    def budget_spent(self, why: str) -> None:
        """See `BudgetListener`."""
        self._journal.submit(self._pausing).add_done_callback(self._paused)

    def _pausing(self, transaction: Transaction) -> EvaluationRow:
        """Pause it if a bound is reached, with the bounds as they are now: a caller may have raised them meanwhile."""
        number, budget = self.row.number, self._budget
        if budget is not None:
            budget.write(transaction)
            if why := budget.reached:
                return controls.set_paused(transaction, number, True, why=why)
        return find_by_number(transaction, number)

    def usage_unknown(self, problem: Problem) -> None:
        """See `BudgetListener`."""
        self.stop(Ending.FAULT, problem)

    def _paused(self, written: asyncio.Future[EvaluationRow]) -> None:
        if written.cancelled():
            return
        if (error := written.exception()) is not None:
            self.fail(error)
            return
        self.apply(Control.of(written.result()))
        if self._throttle.paused:
            self._leave_turn()
        elif self._budget is not None:
            self._budget.reopen()

    async def _continue(self, budget: CostBudget) -> None:
        """Take a turn again if the pause has given it to others, and apply the bounds that callers have set."""
        try:
            await self._journal.submit(budget.write)
        except (BridgeError, JournalUnavailable) as error:
            self.fail(error)
            return
        if self.running and not self._has_turn:
            await self._turns.acquire()
            self._has_turn = True
        budget.reopen()

    def apply(self, control: Control) -> None:
        """Apply what callers have set meanwhile."""
        if self._budget is not None and not control.paused and control.change > self._changes:
            self._continuing = asyncio.create_task(self._continue(self._budget))
        self._changes = max(self._changes, control.change)
        if self._throttle.apply(control):
            self._arm_deadline()
            if self._run is not None:  # a pause is no stall
                self._run.samples.progressed()

    async def _run_to_end(self) -> None:
        structlog.contextvars.bind_contextvars(evaluation_id=self.row.evaluation_id, run_id=self.row.run_id)
        self._arm_deadline()
        work = asyncio.create_task(self._work())
        work.add_done_callback(retrieve_error)
        ticker = asyncio.create_task(self._tick())
        try:
            await asyncio.wait({work, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            # Its progress is written before the end: while the end waits to be committed, the clock continues.
            ticker.cancel()
            if not self._stopped.done() and (error := work.exception()) is not None:
                self.fail(error)
            if self._stopped.done():
                work.cancel()
                await asyncio.wait({work} if self._run is None else {work, self._run.task}, timeout=STOP_SECONDS)
                await self._end(self._stopped.result())
            else:
                self._gate.close()
                await self._complete(*work.result())
        finally:
            ticker.cancel()
            for task in (self._comparing, self._continuing):
                if task is not None:
                    task.cancel()
            self._leave_turn()
            if self._budget is not None:
                self._run_budgets.leave(self._budget)
            self._timeouts.close()
            if self._deadline is not None:
                self._deadline.cancel()
            with contextlib.ExitStack() as last:  # in reverse order, even if one of them raises
                last.callback(self.finished.set)
                last.callback(self._on_finished)
                last.callback(self._locks.release, self.row.number)
                if self.model is not None:
                    last.callback(close_processes, self._plan)

    async def _get_ready(self, prepare: Prepare) -> None:
        """Find what the claim did not know; retry after a retryable error."""
        plan = await self._gate.call(prepare)
        if self._stopped.done():
            # A backend may answer although it was cancelled: an attempt that has ended must not change any more.
            raise Cancelled("the evaluation has ended")
        self._plan, self.model = plan, plan.model
        number, contents, worker_id = self.row.number, plan.contents, self._worker_id
        self.row = await self._journal.submit(
            lambda transaction: claims.prepared(transaction, number, contents, worker_id)
        )
        self._gate.samples = self.row.total

    async def _work(self) -> tuple[Metrics, list[EvaluatorResult]]:
        number = self.row.number
        # What changed between the claim and the moment from which news of changes reach this attempt.
        self.apply(await self._journal.read(control_of, number))
        if (found := await self._journal.read(read_budget, number)) is not None:
            self._budget = self._gate.budget = CostBudget(
                self.row,
                *found,
                prices=self._prices,
                siblings=self._run_budgets,
                listener=self,
                timeouts=self._timeouts,
            )
            self._run_budgets.enter(self._budget)
            # If its budget is spent, it waits without taking a turn from others.
            self.apply(Control.of(await self._journal.submit(self._pausing)))
        if self._prepare is not None:
            await self._get_ready(self._prepare)
        async with self._turn():
            self.running = True
            await self._journal.submit(lambda transaction: lifecycle.mark_running(transaction, number))
            samples = await get_ready(
                self._journal,
                self.row,
                self._request,
                self._plan,
                gate=self._gate,
                timeouts=self._timeouts,
                limits=self._limits,
                seconds_left=self._seconds_left,
                clock=lambda: self._throttle.active_seconds,
                budget=self._budget,
            )
            plan = self._plan = samples.plan
            self._comparing = asyncio.create_task(self._compare_fully(plan))
            before = await self._journal.read(runs_before, number)
            if before:
                self._spent.restore(*await self._journal.read(spent_before, number))
            runs = EvaluatorProgress(
                self._journal,
                self.row,
                plan,
                self._request,
                told=await self._journal.read(recorded_spans, number),
                before=before,
                active_ns=self._active_ns,
                spent=self._spent,
            )
            return await self._run_all(
                SampleScheduler(
                    self._journal,
                    self.row,
                    samples,
                    self._throttle,
                    items_left(plan, before, runs.to_run),
                    runs=runs,
                    spent=self._spent,
                    active_ns=self._active_ns,
                    failed=self.fail,
                    budget=self._budget,
                ),
                runs,
            )

    async def _compare_fully(self, plan: Plan) -> None:
        """Record digests of the models that the start did not wait for, or compare them with an earlier attempt's.

        An attempt that ends sooner leaves none.
        """
        try:
            found = await full_fingerprint(plan)
            number, recorded = self.row.number, self.row.model_fingerprint
            if found != plan.model_fingerprint or (is_full(recorded) and not is_full(found)):
                await self._journal.submit(lambda transaction: claims.complete_model(transaction, number, found))
        except (BridgeError, JournalUnavailable) as error:
            self.fail(error)

    async def _compared(self) -> None:
        """Wait for the comparison with an earlier attempt, so that results of two models are not those of one."""
        if is_full(self.row.model_fingerprint) and self._comparing is not None:
            await self._comparing

    async def _run_all(self, run: SampleScheduler, runs: EvaluatorProgress) -> tuple[Metrics, list[EvaluatorResult]]:
        """Run all samples, and end each evaluator once its last one is committed."""
        if self._stopped.done():
            raise Cancelled("the evaluation has ended")
        self._run = run
        run.start()
        async with asyncio.TaskGroup() as group:
            for index in runs.unfinished:
                group.create_task(self._failing(runs.end(index)))
        if not self._stopped.done():
            await confirm_weights(self._plan, self._gate)
            await self._compared()
        if self._stopped.done():
            raise Cancelled("the evaluation has ended")
        run.close()
        return runs.outcome()

    async def _failing(self, part: Coroutine[None, None, None]) -> None:
        """Do a part of the work; an error of the journal ends the attempt as such, not as a bug of the worker."""
        try:
            await part
        except JournalUnavailable as error:
            self.fail(error)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of the places of evaluations that run; while it is paused, others have it."""
        while True:
            await self._throttle.opened()
            await self._turns.acquire()
            if not self._throttle.paused:
                break
            self._turns.release()
        self._has_turn = True
        try:
            yield
        finally:
            self._leave_turn()

    def _leave_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    @property
    def _engine(self) -> ServerEngine | None:
        """Which program serves the model, as far as it is known; with what the servers of further models refused."""
        if self.model is None:
            return None
        engine = self.model.engine
        refused = {
            f"{name}: {parameter}"
            for models in self._plan.auxiliary_models.values()
            for name, model in models.items()
            if (other := model.engine) is not None
            for parameter in other.not_applied
        }
        if not refused:  # as a rule
            return engine
        engine = engine or ServerEngine()
        return dataclasses.replace(engine, not_applied=(*engine.not_applied, *sorted(refused)))

    @property
    def _done(self) -> int:
        """Samples that this attempt has done."""
        return 0 if self._run is None else self._run.done

    @property
    def _counted(self) -> Mapping[str, float]:
        """What evaluators count while they run, at this worker."""
        return {} if self._run is None else self._run.samples.questions.measurements

    async def _tick(self) -> None:
        done, questions = 0, self._counted
        told, told_at = (done, questions), time.monotonic()
        while not self._stopped.done():
            await asyncio.sleep(min(PROGRESS_SECONDS, self._stall_seconds / 4))
            now, done, questions = time.monotonic(), self._done, self._counted
            active_ns, number = self._active_ns(), self.row.number
            stalls = self._last_progress and not self._throttle.paused and not self._away
            if stalls and now - self._last_progress > self._stall_seconds:
                message = (
                    f"no sample was done and no model answered for stall_timeout_ms, {self._stall_seconds * 1000:.0f}"
                )
                self.stop(Ending.STALL, Problem(reason=Reason.STALLED, message=message, retryable=True))
                return
            further = (done, questions) != told
            if now - told_at < PROGRESS_SECONDS or (not further and now - told_at < KEEP_TIME_SECONDS):
                continue
            try:
                if further:
                    rate = (done - told[0]) / (now - told_at)
                    await self._journal.submit(
                        writing(
                            self._budget,
                            lambda transaction: lifecycle.progress(transaction, self.row, rate, active_ns, questions),  # noqa: B023 - awaited here
                        )
                    )
                else:
                    await self._journal.submit(
                        writing(
                            self._budget,
                            lambda transaction: lifecycle.keep_time(transaction, number, active_ns),  # noqa: B023 - awaited here
                        )
                    )
            except BridgeError as error:
                self.fail(error)
            told, told_at = (done, questions), now

    def _arm_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._throttle.paused or (left := self._seconds_left()) is None:
            return
        message = f"deadline_ms, {self._request.limits.deadline_ms}, is over: all attempts together"
        problem = Problem(reason=Reason.DEADLINE_EXCEEDED, message=message)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(0.0, left), self.stop, Ending.DEADLINE, problem)

    def _seconds_left(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        deadline_ms = self._request.limits.deadline_ms
        if deadline_ms is None:
            return None
        return deadline_ms / 1000 - (self.row.past_active_ns + self._active_ns()) / 1e9

    def _active_ns(self) -> int:
        return int(self._throttle.active_seconds * 1e9)

    def fail(self, error: BaseException) -> None:
        """End it by an error of its work; the first cause counts."""
        if not self._stopped.done():
            stopped = stopped_by(error)
            self.stop(stopped.ending, stopped.problem)

    async def _complete(self, metrics: Metrics, results: Sequence[EvaluatorResult]) -> None:
        active_ns, count, engine = self._active_ns(), len(self._plan.samples), self._engine
        await self._submit_end(
            lambda transaction: lifecycle.complete(
                transaction,
                self._locks,
                self.row,
                metrics=metrics,
                results=results,
                sample_count=count,
                active_ns=active_ns,
                engine=engine,
            )
        )

    async def _end(self, stopped: Stopped) -> None:
        run = self._run
        if run is not None:
            # Samples that are being written are kept: their usage counts.
            await run.until_written()
        await self._submit_end(self._transition(stopped))

    def _transition(self, stopped: Stopped) -> Callable[[Transaction], None]:
        """How it ends, to be committed."""
        locks, row, problem = self._locks, self.row, stopped.problem
        active_ns, usage, engine = self._active_ns(), self._spent.usage, self._engine
        if stopped.ending in INTERRUPTS:

            def interrupt(transaction: Transaction) -> None:
                if stopped.ending is Ending.OUTAGE:
                    controls.put_off(transaction, row.number)
                held, cause = stopped.ending is Ending.USER, problem.message
                lifecycle.interrupt(transaction, locks, row, active_ns, cause, held=held, usage=usage, engine=engine)

            return interrupt
        cancelled = stopped.ending in (Ending.CANCEL, Ending.DEADLINE)
        state = EvaluationState.CANCELLED if cancelled else EvaluationState.FAILED
        return lambda transaction: lifecycle.end(
            transaction, locks, row, state, problem, active_ns, usage=usage, engine=engine
        )

    async def _submit_end(self, transition: Callable[[Transaction], None]) -> None:
        try:
            await self._journal.submit(writing(self._budget, transition))
        except JournalUnavailable as error:
            # The lock is released all the same: the first worker that can write records the interruption.
            _log.warning("end_not_written", reason=error.reason)


def _seconds(milliseconds: int | None, default: float) -> float:
    return default if milliseconds is None else milliseconds / 1000
