r"""One attempt at an evaluation: runs its samples, with bounded concurrency, until they are done or it is stopped.

    is prepared -> waits for its turn -> runs what has no final verdict -> ends, in one transaction
                \-> is stopped: by a cancel, its deadline, a stall, a drain, or a journal that cannot be written

Each evaluator is aggregated, and its end is reported, as soon as its last sample is committed; see `evaluator_runs`.

The first cause of an end counts. From that moment the gate lets no model call through, and no result is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from crucible_bridge.errors import BridgeError, Cancelled
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationState,
    EvaluatorRendering,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    ModelRef,
    Problem,
    Record,
    Sample,
    SampleResult,
    ServerEngine,
    Usage,
    Verdict,
)
from crucible_worker.alarms import Alarms
from crucible_worker.backends.base import Model
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.evaluators.base import (
    Evaluator,
    HasAuxiliaryModels,
    HoldsProcesses,
    Outcome,
    SampleContext,
    as_asked,
    stops_itself,
    turns_kept,
    wants_answers,
)
from crucible_worker.faults import Failures, with_id
from crucible_worker.limits import WorkerLimits
from crucible_worker.prices import priced
from crucible_worker.runs import claims, lifecycle
from crucible_worker.runs.auxiliary_models import Unloaded, auxiliary_models_of, load_auxiliary_models
from crucible_worker.runs.bounds import Patience, bound_of_task
from crucible_worker.runs.caller_parts import GatedCaller
from crucible_worker.runs.calls import CallGate, GatedModel
from crucible_worker.runs.datasets import MalformedSample
from crucible_worker.runs.endings import INTERRUPTS, Ending, Stopped, stopped_by
from crucible_worker.runs.evaluation_files import folder_of
from crucible_worker.runs.evaluator_runs import EvaluatorRuns
from crucible_worker.runs.items import items_left
from crucible_worker.runs.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.runs.journal.contents import kernel_of, turns_bytes
from crucible_worker.runs.journal.owned import OwnersJournal
from crucible_worker.runs.journal.queries import Row, runs_before, spent_before
from crucible_worker.runs.journal.store import Owners
from crucible_worker.runs.outcomes import weight, why_not_kept
from crucible_worker.runs.phases import Phase
from crucible_worker.runs.preparation import Plan, Prepare
from crucible_worker.runs.probing import probe_likelihoods
from crucible_worker.runs.questions import Questions
from crucible_worker.runs.recording import FinishedSample, Recorded, Recorder, sample_bytes
from crucible_worker.runs.renderings import of_auto, pinned
from crucible_worker.runs.spans import recorded_spans
from crucible_worker.runs.specification import sample_seed
from crucible_worker.runs.transcripts import Transcript
from crucible_worker.runs.usage import SampleKey, Spent, judged_usage
from crucible_worker.runs.weights import confirm_weights, record_weights

__all__ = ["KEEP_TIME_SECONDS", "MAX_UNWRITTEN", "PROGRESS_SECONDS", "STOP_SECONDS", "Attempt"]

PROGRESS_SECONDS = 0.25
"""Shortest time between two EVALUATION_PROGRESS."""
KEEP_TIME_SECONDS = 1.0
"""How often the active time is written while nothing else is."""
STOP_SECONDS = 0.05
"""How long a stopped attempt waits for its cancelled calls before it ends without them."""
MAX_UNWRITTEN = 4096
"""Weight of the results that may wait for the journal's writer; above it no further sample is started."""

_log = structlog.get_logger(__name__)


class Attempt:
    """An attempt that this worker owns; call `start` once, then wait for `finished`."""

    def __init__(
        self,
        journal: Journal,
        locks: Owners,
        row: Row,
        request: EvaluateRequest,
        plan: Plan | Prepare,
        *,
        turns: asyncio.Semaphore,
        limits: WorkerLimits,
        worker_id: str,
        received: float,
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
        """
        self.row = row
        self.running = False
        """Whether its turn has come."""
        self.model: Model | None = None
        """The evaluated model, once it is found."""
        self.finished = asyncio.Event()
        """Set when the attempt has ended, and its end is committed or cannot be."""
        self._journal, self._locks, self._request = OwnersJournal(journal, locks, row.number), locks, request
        self._plan: Plan  # from the beginning, or once `_prepare` has found it
        self._runs: EvaluatorRuns  # once the model is loaded
        self._lanes: Sequence[_Lane]  # likewise: of each evaluator
        self._prepare: Prepare | None = None
        self._recorder: Recorder | None = None  # once the data set is known, where samples are recorded
        if isinstance(plan, Plan):
            self._plan, self.model = plan, plan.model
        else:
            self._prepare = plan
        self._turns, self._limits, self._worker_id, self._received = turns, limits, worker_id, received
        self._gate = CallGate(row.total)
        self._alarms = Alarms()
        self._stopped: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._done_now, self._unwritten = 0, 0
        self._seed = (request.sampling.seed if request.sampling is not None else None) or 0
        self._says = request.record is not Record.NONE
        self._questions = Questions()
        self._spent = Spent()
        self._to_write: list[FinishedSample] = []
        self._written = asyncio.Event()
        self._last_progress = 0.0  # until the first sample can start: neither waiting nor loading is a stall
        self._stall_seconds = _seconds(request.limits.stall_timeout_ms, limits.default_stall_timeout_seconds)

    @property
    def taken(self) -> tuple[ModelRef, Usage | None]:
        """The model, and this attempt's usage of it and of judges, as far as that is committed."""
        return self._request.model, self._spent.here

    @property
    def caller(self) -> Caller | None:
        """The caller that it needs to stay connected, if there is one."""
        return None if self.model is None else self._plan.caller

    @property
    def phase(self) -> Phase:
        """What it does now."""
        if self.model is None:
            return Phase.READING
        if not self.running:
            return Phase.WAITING
        if not self._last_progress:
            return Phase.LOADING
        return Phase.ASKING if self._gate.asking else Phase.GRADING

    @property
    def ending(self) -> Ending | None:
        """What stopped it, if anything did."""
        return self._stopped.result().ending if self._stopped.done() else None

    def start(self, on_finished: Callable[[], object]) -> None:
        """Begin; `on_finished` is called just before `finished` is set."""
        self._on_finished = on_finished
        self._task = asyncio.create_task(self._run_to_end(), name=f"evaluation-{self.row.number}")

    def stop(self, ending: Ending, problem: Problem) -> None:
        """End it; the first call counts. No model call starts after this."""
        if not self._stopped.done():
            self._gate.close()
            self._stopped.set_result(Stopped(ending, problem))

    async def _run_to_end(self) -> None:
        structlog.contextvars.bind_contextvars(evaluation_id=self.row.evaluation_id, run_id=self.row.run_id)
        deadline = self._arm_deadline()
        work = asyncio.create_task(self._work())
        work.add_done_callback(_retrieve_error)
        ticker = asyncio.create_task(self._tick())
        try:
            await asyncio.wait({work, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            # Its progress is written before the end: while the end waits to be committed, the clock continues.
            ticker.cancel()
            if not self._stopped.done() and (error := work.exception()) is not None:
                self._fail(error)
            if self._stopped.done():
                work.cancel()
                await asyncio.wait({work}, timeout=STOP_SECONDS)
                await self._end(self._stopped.result())
            else:
                self._gate.close()
                await self._complete(*work.result())
        finally:
            ticker.cancel()
            self._alarms.close()
            if deadline is not None:
                deadline.cancel()
            with contextlib.ExitStack() as last:  # in reverse order, even if one of them raises
                last.callback(self.finished.set)
                last.callback(self._on_finished)
                last.callback(self._locks.release, self.row.number)
                for evaluator in self._process_holders():
                    last.callback(evaluator.close)

    def _process_holders(self) -> list[HoldsProcesses]:
        """Evaluators that have processes."""
        if self.model is None:  # the plan was never made
            return []
        return [evaluator for _, evaluator in self._plan.evaluators if isinstance(evaluator, HoldsProcesses)]

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
        if self._prepare is not None:
            await self._get_ready(self._prepare)
        number = self.row.number
        async with self._turns:
            self.running = True
            await self._journal.submit(lambda transaction: lifecycle.mark_running(transaction, number))
            await self._gate.call(self._plan.model.load)
            await self._plan.model.find_engine()
            plan = await load_auxiliary_models(self._plan, self._gate)
            plan = self._plan = await probe_likelihoods(plan, self._gate)
            await record_weights(plan, self._gate)
            renderings = await self._journal.submit(lambda transaction: pinned(transaction, number, plan))
            kept = folder_of(self._journal.folder, self.row)
            self._lanes = [
                _Lane(spec, evaluator, rendering, kept / str(index))
                for index, ((spec, evaluator), rendering) in enumerate(zip(plan.evaluators, renderings, strict=True))
            ]
            for evaluator in self._process_holders():
                await evaluator.get_ready()
            if self._request.record is Record.FULL:
                self._recorder = Recorder(self.row, len(plan.samples), self._limits)
            told = await self._journal.read(recorded_spans, number)
            before = await self._journal.read(runs_before, number)
            if before:
                self._spent.restore(*await self._journal.read(spent_before, number))
            runs = self._runs = EvaluatorRuns(
                self._journal,
                self.row,
                plan,
                self._request,
                told=told,
                before=before,
                active_ns=self._active_ns,
                spent=self._spent,
            )
            items = items_left(plan, before, runs.to_run)
            self._last_progress = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for index in runs.unfinished:
                    group.create_task(self._failing(runs.end(index)))
                for _ in range(self._concurrency()):
                    group.create_task(self._failing(self._take(items)))
            if self._stopped.done():
                raise Cancelled("the evaluation has ended")
            await confirm_weights(plan, self._gate)
            return runs.outcome()

    async def _failing(self, part: Coroutine[None, None, None]) -> None:
        """Do a part of the work; an error of the journal ends the attempt as such, not as a bug of the worker."""
        try:
            await part
        except JournalUnavailable as error:
            self._fail(error)

    def _concurrency(self) -> int:
        wanted = self._request.limits.concurrency or self._limits.default_concurrency
        return min(wanted, self._limits.max_concurrency, self.row.total)

    async def _take(self, items: Iterator[tuple[SampleKey, int]]) -> None:
        for place, attempt in items:
            # A model may answer a cancellation with another error: the remaining samples must not run.
            if self._stopped.done():
                return
            if self._unwritten >= MAX_UNWRITTEN:
                await self._until_unwritten(MAX_UNWRITTEN)
            if place.evaluator not in self._runs.begun:
                await self._runs.begin(place.evaluator)
            kept = await self._run(place, attempt)
            self._last_progress = time.monotonic()
            self._record(kept)

    async def _run(self, place: SampleKey, attempt: int) -> FinishedSample:
        lane = self._lanes[place.evaluator]
        sample = given = self._plan.samples[place.position]
        if lane.wants_answers and isinstance(sample, Sample):
            sample = as_asked(sample)
        patience = self._patience()
        keeps_turns = self._recorder is not None and lane.keeps_turns_of(place.position)
        room = self._limits.max_sample_record_bytes if keeps_turns else 0
        transcript = None if self._recorder is None else Transcript(room)
        listener = None if transcript is None else transcript.listener()
        model = GatedModel(self._plan.model, self._gate, patience.answered, listener, lane.renderer)
        auxiliary_models = auxiliary_models_of(
            self._plan, place.evaluator, self._gate, patience.answered, transcript, lane.auxiliary_renderers
        )
        started = time.perf_counter_ns()
        if isinstance(sample, MalformedSample):
            outcome = _error(sample.problem)
        else:
            context = SampleContext(
                model=model,
                repeat=place.repeat,
                seed=sample_seed(self._seed, sample.id, place.repeat),
                auxiliary_models=auxiliary_models,
                caller=self._caller_of(lane, place, patience),
                bound=bound_of_task(self._request.limits, self._seconds_left()) if lane.stops_itself else None,
                keeps_turns=keeps_turns,
                progressed=self._progressed,
                counted=self._questions.of(place),
                folder=lane.folder,
            )
            outcome = await self._outcome(lane, sample, context, patience)
        duration_ns = time.perf_counter_ns() - started
        calls = model.calls
        for other in auxiliary_models.values():
            calls += other.calls
        result = self._result(lane.label, place, sample.id, outcome, duration_ns, calls)
        recorded = None
        if transcript is not None and self._recorder is not None and not isinstance(given, MalformedSample):
            turns = transcript.turns(outcome.turns) if keeps_turns else ()
            size = transcript.held + (turns_bytes(outcome.turns) if outcome.turns else 0)
            left_out = transcript.left_out + outcome.turns_left_out if keeps_turns else 0
            held = None if self._recorder.all_known else given
            size += 0 if held is None else sample_bytes(held)
            recorded = Recorded(held, kernel_of(given), transcript.prompt, turns, left_out, size)
        took = self._usage_of(lane.evaluator, model, auxiliary_models)
        return FinishedSample(
            place, result, attempt, took, recorded, weight(result, 0 if recorded is None else recorded.size)
        )

    def _caller_of(self, lane: _Lane, place: SampleKey, patience: Patience) -> GatedCaller | None:
        """The caller as a sample sees it, if it stays connected."""
        if (caller := self._plan.caller) is None:  # as a rule
            return None
        return GatedCaller(caller, self._gate, patience.answered, evaluator=lane.label, repeat=place.repeat)

    def _result(
        self, label: str, place: SampleKey, sample_id: str, outcome: Outcome, duration_ns: int, calls: int
    ) -> SampleResult:
        return SampleResult(
            evaluator=label,
            sample_id=sample_id,
            repeat=place.repeat,
            verdict=outcome.verdict,
            score=outcome.score,
            output=outcome.output if self._says else "",
            extracted=outcome.extracted if self._says else "",
            method=outcome.method,
            stop_reason=outcome.stop_reason,
            output_tokens=outcome.output_tokens,
            duration_ns=duration_ns,
            attempts=calls,
            problem=outcome.problem,
            measurements=outcome.measurements,
            group=outcome.group,
        )

    def _usage_of(
        self, evaluator: Evaluator, model: GatedModel, auxiliary_models: Mapping[str, GatedModel | Unloaded]
    ) -> Usage | Meter | None:
        """Usage of a sample, at its end."""
        meter = model.meter
        meter.close()
        if not auxiliary_models and not self._plan.prices:  # as a rule
            return meter if meter.calls else None
        meters = {name: other.meter for name, other in auxiliary_models.items() if isinstance(other, GatedModel)}
        for other in meters.values():
            other.close()
        usage = judged_usage(
            meter, meters, evaluator.auxiliary_models if isinstance(evaluator, HasAuxiliaryModels) else {}
        )
        return priced(usage, self._request.model, self._plan.prices)

    @property
    def _engine(self) -> ServerEngine | None:
        """Which program serves the model, as far as it is known."""
        return None if self.model is None else self.model.engine

    async def _outcome(self, lane: _Lane, sample: Sample, context: SampleContext, patience: Patience) -> Outcome:
        prompter = self._plan.prompter
        try:
            with contextlib.nullcontext() if lane.stops_itself else patience:
                prompted = sample if prompter is None else await prompter.apply(sample)
                outcome = await lane.evaluator.run(prompted, context)
        except BridgeError as error:
            return _error(problem_of(error))
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Rust, for one, is no Exception
            # Until Python 3.11.3 an error may arrive as the cancellation by which it ended another task's wait.
            if (late := patience.problem) is not None:
                return _error(late)
            if isinstance(error, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Nothing cancels this sample. If the error were raised, it would silently end this task, and the
                # samples that the task still has to run would be lost.
                what = "the evaluator was cancelled by what it waited for"
            else:
                what = f"{type(error).__name__} in the evaluator"
            error_id = lane.failures.logged(_log, "sample_failed", error, evaluator=lane.label, sample_id=sample.id)
            message = with_id(what, error_id)
            return _error(Problem(reason=Reason.EVALUATOR_FAILED, message=message))
        problem = why_not_kept(outcome)
        return outcome if problem is None else _error(problem)

    def _patience(self) -> Patience:
        wanted = self._request.limits.sample_timeout_ms
        seconds = None if wanted is None else wanted / 1000
        return Patience(self._alarms, seconds, self._limits.default_sample_timeout_seconds, self._progressed)

    def _progressed(self) -> None:
        self._last_progress = time.monotonic()

    def _record(self, kept: FinishedSample) -> None:
        if self._stopped.done():
            return
        self._unwritten += kept.weight
        if not self._to_write:
            # All samples that end in this iteration of the loop are submitted together, before anything later.
            asyncio.get_running_loop().call_soon(self._write)
        self._to_write.append(kept)

    def _write(self) -> None:
        kept, self._to_write = self._to_write, []
        active_ns, size, recorder = self._active_ns(), sum([one.weight for one in kept]), self._recorder
        future = self._journal.submit(
            lambda transaction: lifecycle.commit_samples(transaction, self.row, kept, active_ns, recorder), size=size
        )
        future.add_done_callback(functools.partial(self._written_now, kept, size))

    def _written_now(self, kept: Sequence[FinishedSample], size: int, future: asyncio.Future[None]) -> None:
        self._unwritten -= size
        self._written.set()
        error = future.exception()
        if error is None:
            self._done_now += len(kept)
            for one in kept:
                self._spent.add(one.place, one.took)
            self._runs.written(kept)
        else:
            self._fail(error)

    async def _until_unwritten(self, fewer_than: int) -> None:
        while self._unwritten >= fewer_than:
            self._written.clear()
            await self._written.wait()

    async def _tick(self) -> None:
        done, questions = 0, self._questions.measurements
        told, told_at = (done, questions), time.monotonic()
        while not self._stopped.done():
            await asyncio.sleep(min(PROGRESS_SECONDS, self._stall_seconds / 4))
            now, done, questions = time.monotonic(), self._done_now, self._questions.measurements
            active_ns, number = self._active_ns(), self.row.number
            if self._last_progress and now - self._last_progress > self._stall_seconds:
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
                        lambda transaction: lifecycle.progress(transaction, self.row, rate, active_ns, questions)  # noqa: B023 - awaited here
                    )
                else:
                    await self._journal.submit(
                        lambda transaction: lifecycle.keep_time(transaction, number, active_ns)  # noqa: B023 - awaited here
                    )
            except BridgeError as error:
                self._fail(error)
            told, told_at = (done, questions), now

    def _arm_deadline(self) -> asyncio.TimerHandle | None:
        if (left := self._seconds_left()) is None:
            return None
        message = f"deadline_ms, {self._request.limits.deadline_ms}, is over: all attempts together"
        problem = Problem(reason=Reason.DEADLINE_EXCEEDED, message=message)
        return asyncio.get_running_loop().call_later(max(0.0, left), self.stop, Ending.DEADLINE, problem)

    def _seconds_left(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        deadline_ms = self._request.limits.deadline_ms
        if deadline_ms is None:
            return None
        return deadline_ms / 1000 - (self.row.past_active_ns + self._active_ns()) / 1e9

    def _active_ns(self) -> int:
        return int((time.monotonic() - self._received) * 1e9)

    def _fail(self, error: BaseException) -> None:
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
        # Samples that are being written are kept: their usage counts.
        await self._until_unwritten(1)
        active_ns, row, problem = self._active_ns(), self.row, stopped.problem
        usage, engine = self._spent.usage, self._engine
        if stopped.ending in INTERRUPTS:
            await self._submit_end(
                lambda transaction: lifecycle.interrupt(
                    transaction, self._locks, row, active_ns, problem.message, usage=usage, engine=engine
                )
            )
            return
        cancelled = stopped.ending in (Ending.CANCEL, Ending.DEADLINE)
        state = EvaluationState.CANCELLED if cancelled else EvaluationState.FAILED
        await self._submit_end(
            lambda transaction: lifecycle.end(
                transaction, self._locks, row, state, problem, active_ns, usage=usage, engine=engine
            )
        )

    async def _submit_end(self, transition: Callable[[Transaction], None]) -> None:
        try:
            await self._journal.submit(transition)
        except JournalUnavailable as error:
            # The lock is released all the same: the first worker that can write records the interruption.
            _log.warning("end_not_written", reason=error.reason)


class _Lane:
    """An evaluator, with what all of its samples share."""

    __slots__ = (
        "auxiliary_renderers",
        "evaluator",
        "failures",
        "folder",
        "label",
        "renderer",
        "stops_itself",
        "turns_kept",
        "wants_answers",
    )

    def __init__(self, spec: EvaluatorSpec, evaluator: Evaluator, rendering: EvaluatorRendering, folder: Path) -> None:
        self.evaluator, self.label, self.folder, self.failures = evaluator, spec.label, folder, Failures()
        self.renderer, self.auxiliary_renderers = of_auto(spec, rendering), rendering.others
        self.stops_itself, self.wants_answers = stops_itself(evaluator), wants_answers(evaluator)
        self.turns_kept = turns_kept(evaluator)

    def keeps_turns_of(self, position: int) -> bool:
        """Whether the turns of the sample at this place of the data set are recorded."""
        return self.turns_kept is None or position < self.turns_kept


def _retrieve_error(work: asyncio.Task[tuple[Metrics, list[EvaluatorResult]]]) -> None:
    """Retrieve the error, so that asyncio does not log it: errors of a stopped attempt's work are expected."""
    if not work.cancelled():
        work.exception()


def _error(problem: Problem) -> Outcome:
    return Outcome(verdict=Verdict.ERROR, problem=problem)


def _seconds(milliseconds: int | None, default: float) -> float:
    return default if milliseconds is None else milliseconds / 1000
