"""How one sample is run at this worker, with everything that the samples of an evaluation share there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import structlog

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_GROUP_BYTES,
    Conversation,
    EvaluateRequest,
    EvaluatorRendering,
    Limits,
    ModelRef,
    Problem,
    Record,
    Sample,
    SampleResult,
    Usage,
    Verdict,
)
from crucible_worker.backends.metering import Charged, Meter
from crucible_worker.datasets.loading import MalformedSample
from crucible_worker.engine.auxiliary_models import (
    GatedCaller,
    Unloaded,
    load_auxiliary_models,
    record_weights,
)
from crucible_worker.engine.budgets import CostBudget
from crucible_worker.engine.preparation import Plan, probe_likelihoods
from crucible_worker.engine.recording import FinishedSample, Recorded, Recorder, sample_bytes
from crucible_worker.engine.renderings import first_joint, of_auto, pinned
from crucible_worker.engine.usage import judged_usage
from crucible_worker.evaluators.base import (
    Bound,
    Evaluator,
    HasAuxiliaryModels,
    HoldsProcesses,
    Outcome,
    SampleContext,
    as_asked,
    measures_likelihoods,
    stops_itself,
    turns_kept,
    wants_answers,
)
from crucible_worker.history.retention import folder_of
from crucible_worker.inference.retries import RetryingModel, RetryPolicy, sample_seed
from crucible_worker.inference.transcripts import CallListener, Transcript
from crucible_worker.journal import Journal
from crucible_worker.journal.contents import bounded_reply, kernel_of, reply_bytes, turns_bytes
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import SampleKey
from crucible_worker.util.error_reporter import ErrorReporter, shortage, with_id
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.prices import priced
from crucible_worker.util.tasks import Timeout, TimeoutQueue

__all__ = [
    "WIND_UP_SECONDS",
    "SampleRunner",
    "SampleTimeout",
    "bound_of_task",
    "close_processes",
    "get_ready",
]

# How long one sample may take, by the limits of its evaluation.

WIND_UP_SECONDS = 10.0
"""Seconds that an evaluator with `stops_itself` has to stop; before a deadline at most a tenth of the time left."""


def sample_timed_out(seconds: float) -> Problem:
    """The problem of a sample that took too long."""
    message = f"took longer than sample_timeout_ms, {seconds * 1000:.0f}"
    return Problem(reason=Reason.SAMPLE_TIMEOUT, message=message, retryable=True)


class SampleTimeout(Timeout):
    """A sample's time: ends the block as `asyncio.timeout` does.

    Args:
        timeouts: of the evaluation.
        seconds: of the request, for the whole sample; None if it names none.
        default_seconds: the worker's, which restart with each answer of a model: a sample of many calls may run as
            long as it makes progress.
        progressed: called with each answer, whatever bounds the sample.
    """

    __slots__ = ("_default_seconds", "_loop", "_progressed", "_seconds")

    def __init__(
        self,
        timeouts: TimeoutQueue,
        seconds: float | None,
        default_seconds: float,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._seconds, self._default_seconds, self._progressed = seconds, default_seconds, progressed
        self._loop = asyncio.get_running_loop()
        super().__init__(timeouts, self._loop.time() + (default_seconds if seconds is None else seconds))

    @property
    def problem(self) -> Problem | None:
        """What the sample ends with, if its time is over."""
        if not self.expired():
            return None
        if self._seconds is not None:
            return sample_timed_out(self._seconds)
        message = f"had no answer of a model for default_sample_timeout_seconds, {self._default_seconds:g}"
        return Problem(reason=Reason.SAMPLE_TIMEOUT, message=message, retryable=True)

    def seconds_left(self) -> float | None:
        """Seconds until the sample ends by its time, if no model answers before; None if it is not bounded."""
        ends = self.when() if self.running else None
        return None if ends is None else ends - self._loop.time()

    def waited(self, seconds: float) -> None:
        """A call has waited so long for its turn at a server: the worker's own time does not count that."""
        if self._seconds is None and seconds > 0 and self.running and (ends := self.when()) is not None:
            self.reschedule(ends + seconds)

    def answered(self) -> None:
        """A model has answered."""
        if self._seconds is None:
            self.reschedule(self._loop.time() + self._default_seconds)
        self._progressed()


def bound_of_task(limits: Limits, left: float | None, clock: Callable[[], float]) -> Bound | None:
    """When a sample of an evaluator that `stops_itself` has to end: at its own time-out, or before the deadline.

    Args:
        limits: of the request; the worker's default time of a sample is not for such evaluators.
        left: seconds until the evaluation's deadline; None if it has none.
        clock: seconds that stand still while the evaluation is paused.
    """
    bounds: list[Bound] = []
    if limits.sample_timeout_ms is not None:
        seconds = limits.sample_timeout_ms / 1000
        bounds.append(
            Bound(seconds=seconds, wind_up_seconds=WIND_UP_SECONDS, problem=sample_timed_out(seconds), clock=clock)
        )
    if left is not None:
        message = f"had not ended shortly before deadline_ms, {limits.deadline_ms}"
        problem = Problem(reason=Reason.DEADLINE_EXCEEDED, message=message)
        wind_up = max(0.0, min(WIND_UP_SECONDS, left / 10))
        bounds.append(Bound(seconds=max(0.0, left - wind_up), wind_up_seconds=wind_up, problem=problem, clock=clock))
    return min(bounds, key=lambda bound: bound.seconds, default=None)


# Which outcomes the journal accepts: finite numbers, and rollouts that fit into a page of samples.

WEIGHT_BYTES = 16 * 1024
"""Bytes of rollouts that count as much as a result while they wait to be written."""
RECORD_WEIGHT_BYTES = 2 * 1024
"""Likewise for records: samples of large files must not pile up in memory."""


def why_not_kept(outcome: Outcome) -> Problem | None:
    """Why an outcome cannot be recorded; None if it can."""
    numbers = [*outcome.measurements.values(), 0.0 if outcome.score is None else outcome.score]
    if not all(map(math.isfinite, numbers)):
        return Problem(reason=Reason.NOT_FINITE, message="a score or measurement is not finite")
    if outcome.group is None:
        return None
    try:
        size = outcome.group.checked("group").size
    except InvalidField as error:
        return Problem(reason=Reason.BAD_GROUP, message=error.message, field=error.field)
    if size > MAX_GROUP_BYTES:
        message = f"the rollouts have {size:,} bytes, at most {MAX_GROUP_BYTES:,} are recorded of a sample"
        return Problem(reason=Reason.GROUP_TOO_LARGE, message=message)
    return None


def weight(result: SampleResult, recorded_bytes: int = 0) -> int:
    """Weight of a result while it waits to be written: 1, and more with the size of its rollouts and record."""
    rollouts = 0 if result.group is None else result.group.size // WEIGHT_BYTES
    return 1 + rollouts + recorded_bytes // RECORD_WEIGHT_BYTES


# Progress of samples that have many questions each, such as a task of Inspect.

_NONE: Mapping[str, float] = MappingProxyType({})


class QuestionCounter:
    """Counts the questions of one attempt, those of samples that have ended included."""

    def __init__(self) -> None:
        self._counts: dict[SampleKey, tuple[int, int]] = {}

    def of(self, place: SampleKey) -> Callable[[int, int], None]:
        """The function that a sample calls with the number of its questions that are done, and of all."""
        return functools.partial(self._count, place)

    @property
    def measurements(self) -> Mapping[str, float]:
        """`questions_done` and `questions_total` of the samples that have begun; empty if none has questions."""
        if not self._counts:
            return _NONE
        done, total = map(sum, zip(*self._counts.values()))
        return {"questions_done": float(done), "questions_total": float(total)}

    def _count(self, place: SampleKey, done: int, total: int) -> None:
        self._counts[place] = (done, total)


_log = structlog.get_logger(__name__)


class SampleRunner:
    """Runs samples of an evaluation whose models are loaded; made by `get_ready`, used in one event loop."""

    def __init__(
        self,
        row: EvaluationRow,
        request: EvaluateRequest,
        plan: Plan,
        renderings: Sequence[EvaluatorRendering],
        folder: Path,
        *,
        gate: RetryPolicy,
        timeouts: TimeoutQueue,
        limits: WorkerLimits,
        seconds_left: Callable[[], float | None],
        clock: Callable[[], float],
        budget: CostBudget | None,
    ) -> None:
        """See `get_ready`."""
        self.plan = plan
        """What is run, with the models that are loaded."""
        self.slots = [
            EvaluatorSlot(plan, index, rendering, folder / str(index))
            for index, rendering in zip(range(len(plan.evaluators)), renderings, strict=True)
        ]
        """Evaluators, each with what all of its samples share."""
        self.recorder = Recorder(row, len(plan.samples), limits) if request.record is Record.FULL else None
        """Writes what is recorded of samples besides their results, if anything is."""
        self.questions = QuestionCounter()
        """What evaluators count while they run."""
        self.last_progress = time.monotonic()
        """When a sample ended or a model answered the last time."""
        self.gate = gate
        """Every call of a model passes it."""
        self._request, self._gate, self._timeouts, self._limits = request, gate, timeouts, limits
        self._charged = _charges(budget, request.model, plan)
        self._seconds_left, self._clock = seconds_left, clock
        self._seed = (request.sampling.seed if request.sampling is not None else None) or 0
        self._says = request.record is not Record.NONE
        wanted = request.limits.sample_timeout_ms
        self._sample_seconds = None if wanted is None else wanted / 1000

    def progressed(self) -> None:
        """Note that it is not stalled."""
        self.last_progress = time.monotonic()

    @property
    def _bound(self) -> Bound | None:
        return bound_of_task(self._request.limits, self._seconds_left(), self._clock)

    async def run(self, place: SampleKey, attempt: int) -> FinishedSample:
        """Run one sample with one evaluator, once; an error of it is its result."""
        slot = self.slots[place.evaluator]
        sample = given = self.plan.samples[place.position]
        if slot.wants_answers and isinstance(sample, Sample) and isinstance(sample.input, Conversation):
            sample = as_asked(sample)
        sample_timeout = SampleTimeout(
            self._timeouts, self._sample_seconds, self._limits.default_sample_timeout_seconds, self.progressed
        )
        transcript = listener = None
        keeps_turns = False
        if self.recorder is not None:
            keeps_turns = slot.turns_kept is None or place.position < slot.turns_kept
            transcript = Transcript(self._limits.max_sample_record_bytes if keeps_turns else 0)
            listener = CallListener(transcript)
        model = RetryingModel(
            self.plan.model,
            self._gate,
            sample_timeout.answered,
            listener,
            slot.renderer,
            sample_timeout.seconds_left,
            self.plan.reading,
            self._charged.get(None),
            sample_timeout.waited,
        )
        auxiliary_models: Mapping[str, RetryingModel | Unloaded] = {}
        if slot.auxiliary_models:
            auxiliary_models = self._auxiliary_models_of(place, slot, sample_timeout, transcript)
        if (caller := self.plan.caller) is not None:
            caller = GatedCaller(caller, self._gate, sample_timeout.answered, evaluator=slot.label, repeat=place.repeat)
        started = time.perf_counter_ns()
        if isinstance(sample, MalformedSample):
            outcome = _error(sample.problem)
        else:
            context = SampleContext(
                model=model,
                repeat=place.repeat,
                seed=sample_seed(self._seed, sample.id, place.repeat),
                auxiliary_models=auxiliary_models,
                caller=caller,
                bound=self._bound if slot.stops_itself else None,
                keeps_turns=keeps_turns,
                progressed=self.progressed,
                counted=self.questions.of(place),
                folder=slot.folder,
            )
            outcome = await self._outcome(slot, sample, context, sample_timeout)
            if not outcome.output_tokens and model.meter.calls and model.meter.output_tokens is None:
                outcome.output_tokens = None
        duration_ns = time.perf_counter_ns() - started
        calls = model.calls
        for other in auxiliary_models.values():
            calls += other.calls
        result = self._result(slot.label, place, sample.id, outcome, duration_ns, calls)
        recorded = None
        if transcript is not None and self.recorder is not None and not isinstance(given, MalformedSample):
            turns = transcript.turns(outcome.turns) if keeps_turns else ()
            size = reply_bytes(result) + transcript.held + (turns_bytes(outcome.turns) if outcome.turns else 0)
            left_out = transcript.left_out + outcome.turns_left_out if keeps_turns else 0
            held = None if self.recorder.all_known else given
            size += 0 if held is None else sample_bytes(held)
            recorded = Recorded(held, kernel_of(given), transcript.prompt, turns, left_out, size)
        took = self._usage_of(slot.evaluator, model, auxiliary_models)
        return FinishedSample(
            place, result, attempt, took, recorded, weight(result, 0 if recorded is None else recorded.size)
        )

    def _auxiliary_models_of(
        self, place: SampleKey, slot: EvaluatorSlot, sample_timeout: SampleTimeout, transcript: Transcript | None
    ) -> Mapping[str, RetryingModel | Unloaded]:
        """The further models of an evaluator as one sample sees them, by name."""
        return {
            name: model
            if isinstance(model, Unloaded)
            else RetryingModel(
                model,
                self._gate,
                sample_timeout.answered,
                None if transcript is None else CallListener(transcript, name),
                slot.auxiliary_renderers.get(name),
                sample_timeout.seconds_left,
                slot.auxiliary_reading,
                self._charged.get((place.evaluator, name)),
                sample_timeout.waited,
            )
            for name, model in slot.auxiliary_models.items()
        }

    def _result(
        self, label: str, place: SampleKey, sample_id: str, outcome: Outcome, duration_ns: int, calls: int
    ) -> SampleResult:
        result = SampleResult(
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
            reasoning=outcome.reasoning if self._says else "",
            refusal=outcome.refusal if self._says else "",
            tool_calls=outcome.tool_calls if self._says else (),
            unparsed_tool_calls=outcome.unparsed_tool_calls if self._says else (),
        )
        return bounded_reply(result, self._limits.max_sample_record_bytes)

    def _usage_of(
        self, evaluator: Evaluator, model: RetryingModel, auxiliary_models: Mapping[str, RetryingModel | Unloaded]
    ) -> Usage | Meter | None:
        """Usage of a sample, at its end."""
        meter = model.meter
        meter.close()
        if not auxiliary_models and not self.plan.prices:  # as a rule
            return meter if meter.calls else None
        meters = {name: other.meter for name, other in auxiliary_models.items() if isinstance(other, RetryingModel)}
        for other in meters.values():
            other.close()
        usage = judged_usage(
            meter, meters, evaluator.auxiliary_models if isinstance(evaluator, HasAuxiliaryModels) else {}
        )
        return priced(usage, self._request.model, self.plan.prices)

    async def _outcome(
        self, slot: EvaluatorSlot, sample: Sample, context: SampleContext, sample_timeout: SampleTimeout
    ) -> Outcome:
        prompter = self.plan.prompter
        try:
            with contextlib.nullcontext() if slot.stops_itself else sample_timeout:
                prompted = sample if prompter is None else await prompter.apply(sample)
                outcome = await slot.evaluator.run(prompted, context)
        except BridgeError as error:
            return _error(problem_of(error))
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Rust, for one, is no Exception
            # Until Python 3.11.3 an error may arrive as the cancellation by which it ended another task's wait.
            if (late := sample_timeout.problem) is not None:
                return _error(late)
            if (lacking := shortage(error)) is not None:
                return _error(problem_of(lacking))
            if isinstance(error, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Nothing cancels this sample. If the error were raised, it would silently end this task, and the
                # samples that the task still has to run would be lost.
                what = "the evaluator was cancelled by what it waited for"
            else:
                what = f"{type(error).__name__} in the evaluator"
            error_id = slot.failures.logged(_log, "sample_failed", error, evaluator=slot.label, sample_id=sample.id)
            message = with_id(what, error_id)
            return _error(Problem(reason=Reason.EVALUATOR_FAILED, message=message))
        problem = why_not_kept(outcome)
        return outcome if problem is None else _error(problem)


class EvaluatorSlot:
    """An evaluator, with what all of its samples share."""

    __slots__ = (
        "auxiliary_models",
        "auxiliary_reading",
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

    def __init__(self, plan: Plan, index: int, rendering: EvaluatorRendering, folder: Path) -> None:
        spec, evaluator = plan.evaluators[index]
        self.evaluator, self.label, self.folder, self.failures = evaluator, spec.label, folder, ErrorReporter()
        self.renderer, self.auxiliary_renderers = of_auto(spec, rendering), rendering.others
        self.stops_itself, self.wants_answers = stops_itself(evaluator), wants_answers(evaluator)
        self.turns_kept = turns_kept(evaluator)
        self.auxiliary_models = plan.auxiliary_models.get(index, {})
        # A model that is measured as the evaluated one is reads text as that one does.
        self.auxiliary_reading = plan.reading if measures_likelihoods(evaluator) else None


async def get_ready(
    journal: Journal | FencedJournal,
    row: EvaluationRow,
    request: EvaluateRequest,
    plan: Plan,
    *,
    gate: RetryPolicy,
    timeouts: TimeoutQueue,
    limits: WorkerLimits,
    seconds_left: Callable[[], float | None],
    clock: Callable[[], float] = time.monotonic,
    budget: CostBudget | None = None,
) -> SampleRunner:
    """Load the models of a plan, find how they are prompted, and start the processes of its evaluators.

    Args:
        journal: where the evaluation is recorded; it also has the renderings of the first attempt.
        row: the evaluation.
        request: what to run.
        plan: what to run, ready but for its models.
        gate: every call of a model passes it.
        timeouts: for the times of samples.
        limits: the worker's.
        seconds_left: returns the seconds until the evaluation's deadline; None if it has none.
        clock: seconds that stand still while the evaluation is paused.
        budget: what its calls may cost; None if that is not bounded.

    Raises:
        BridgeError: the model cannot be loaded.
        JournalUnavailable: the journal cannot be written.
    """
    await gate.call(plan.model.load, model=plan.model)
    await plan.model.find_engine()
    ready = await probe_likelihoods(await load_auxiliary_models(plan, gate), gate)
    await record_weights(ready, gate)
    try:
        joint = await first_joint(ready)
    except BridgeError:  # it is the error of the first sample
        joint = None
    renderings = await journal.submit(lambda transaction: pinned(transaction, row.number, ready, joint))
    for evaluator in _process_holders(ready):
        await evaluator.get_ready()
    folder = folder_of(journal.folder, row)
    return SampleRunner(
        row,
        request,
        ready,
        renderings,
        folder,
        gate=gate,
        timeouts=timeouts,
        limits=limits,
        seconds_left=seconds_left,
        clock=clock,
        budget=budget,
    )


def _charges(budget: CostBudget | None, model: ModelRef, plan: Plan) -> Mapping[tuple[int, str] | None, Charged]:
    """What counts the calls of each model towards a budget: None is the evaluated one, others by evaluator and name."""
    if budget is None:
        return {}
    others = {
        (index, name): budget.charged(other)
        for index, (_, evaluator) in enumerate(plan.evaluators)
        if isinstance(evaluator, HasAuxiliaryModels)
        for name, other in evaluator.auxiliary_models.items()
    }
    return {None: budget.charged(model), **others}


def close_processes(plan: Plan) -> None:
    """End the processes of a plan's evaluators, even if one of them cannot be ended."""
    with contextlib.ExitStack() as last:
        for evaluator in _process_holders(plan):
            last.callback(evaluator.close)


def _process_holders(plan: Plan) -> list[HoldsProcesses]:
    return [evaluator for _, evaluator in plan.evaluators if isinstance(evaluator, HoldsProcesses)]


def _error(problem: Problem) -> Outcome:
    return Outcome(verdict=Verdict.ERROR, problem=problem)
