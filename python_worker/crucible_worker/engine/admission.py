"""Which evaluations this worker takes on: checks a request, claims the evaluation, and owns its attempts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog

from crucible_bridge.errors import (
    BridgeError,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidField,
    ResourceExhausted,
    Unavailable,
)
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Dataset,
    EvaluateRequest,
    EvaluationState,
    EvaluatorSpec,
    ModelRef,
    PlannedEvaluation,
    Problem,
    RenderSampleResponse,
    Usage,
)
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.datasets.loading import LoadedDataset
from crucible_worker.engine import claims, controls
from crucible_worker.engine.auxiliary_models import refuse_without_caller, unused_parts
from crucible_worker.engine.budgets import RunBudgets
from crucible_worker.engine.claims import EvaluationOwners
from crucible_worker.engine.controls import Control, Ending, controls_at_work
from crucible_worker.engine.engine import Attempt
from crucible_worker.engine.phases import Phase
from crucible_worker.engine.preparation import Plan, Prepare, Preparer, Sources, refuse_without_likelihoods
from crucible_worker.engine.renderings import render_sample
from crucible_worker.engine.usage import Spending
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.history.lifecycle import Reaper
from crucible_worker.history.rules import refuse_other_rules
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.queries import EvaluationRow, Reads, find, find_rendering
from crucible_worker.journal.records import request_from_record
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.util.fingerprints import model_part, same
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import FewAtOnce

__all__ = [
    "CALLER_LEFT",
    "CANCEL_CHECK_SECONDS",
    "DRAIN_RETRY_SECONDS",
    "QUEUE_RETRY_SECONDS",
    "Admission",
    "draining_error",
]

T = TypeVar("T")

CANCEL_CHECK_SECONDS = 0.01
"""Shortest time between two checks for what callers asked other workers; news of it comes within 20 ms."""
CLAIM_SECONDS = 0.1
"""After which a claim holds up no other one: its data set is large, or its model is slow to open. Claims that are
quicker are made one after the other."""
QUEUE_RETRY_SECONDS = 2.5, 5.0
"""Seconds after which a caller may retry when the queue is full: drawn between them, so that not all come at once."""

_log = structlog.get_logger(__name__)
DRAIN_RETRY_SECONDS = 1.0
"""Seconds after which a caller may retry when the worker drains."""

CALLER_LEFT = Problem(reason=Reason.CALLER_LEFT, message="the caller disconnected", retryable=True)
"""Why an evaluation is interrupted when the caller that has a part of it disconnects."""

_DRAINING = Problem(reason=Reason.DRAINING, message="the worker drains", retryable=True)


def _write_nothing(transaction: Transaction) -> None:
    """The default of `also`: a claim writes nothing else."""


def draining_error() -> Unavailable:
    """The error while the worker drains; another worker, or this one's successor, can take the call."""
    return Unavailable("the worker is draining", reason=Reason.DRAINING, retry_after=DRAIN_RETRY_SECONDS)


class Loggers(Protocol):
    """What takes the results of evaluations out of the journal."""

    @property
    def log_to(self) -> Sequence[str]:
        """Loggers of evaluations that name none."""
        ...

    async def check(self, log_to: Sequence[str]) -> None:
        """Raise the error of loggers that a request may not name, or that cannot run here."""


class Admission:
    """The evaluations that this worker owns."""

    def __init__(
        self,
        journal: Journal,
        locks: EvaluationOwners,
        reaper: Reaper,
        sources: Sources,
        limits: WorkerLimits,
        worker_id: str,
        spending: Spending,
        loggers: Loggers,
    ) -> None:
        self.draining = False
        """Whether new evaluations are refused."""
        self.held = False
        """Whether what a drain interrupts waits for a call: its user has ended the command that runs it."""
        self.preparer = Preparer(sources)
        """Makes plans."""
        self._run_budgets = RunBudgets()
        self.turns = asyncio.Semaphore(limits.max_running_evaluations)
        """A place for each evaluation that runs."""
        self._journal, self._locks, self._reaper = journal, locks, reaper
        self._loggers = loggers
        self._limits, self._worker_id, self._spending = limits, worker_id, spending
        self._attempts: dict[int, Attempt] = {}
        self._claims: set[asyncio.Task[tuple[EvaluationRow, bool]]] = set()
        self._preparing = 0
        self._claimants = FewAtOnce(1)

    @property
    def load(self) -> tuple[int, int]:
        """Evaluations that run, and that wait for their turn."""
        running = sum(attempt.running for attempt in self._attempts.values())
        return running, len(self._attempts) - running

    @property
    def has_room(self) -> bool:
        """Whether another evaluation would run at once."""
        at_work = sum(attempt.phase is not Phase.PAUSED for attempt in self._attempts.values())
        return at_work + self._preparing < self._limits.max_running_evaluations

    @property
    def taken(self) -> Iterable[tuple[ModelRef, Usage | None]]:
        """What attempts under way have taken here, each of its model."""
        return [attempt.taken for attempt in self._attempts.values()]

    def first(self) -> contextlib.AbstractContextManager[None]:
        """A block that has priority over the reading of data sets; see `CallPriority`."""
        return self.preparer.priority.taken()

    @property
    def attempts(self) -> Iterable[Attempt]:
        """This worker's running attempts."""
        return self._attempts.values()

    def attempt(self, number: int) -> Attempt | None:
        """This worker's running attempt at an evaluation; None if there is none."""
        return self._attempts.get(number)

    def phase(self, evaluation_id: str) -> Phase | None:
        """What this worker's attempt at an evaluation does now; None if there is none."""
        for attempt in self._attempts.values():
            if attempt.row.evaluation_id == evaluation_id:
                return attempt.phase
        return None

    async def check(self, planned: PlannedEvaluation) -> None:
        """Refuse what no model could run: the checks of `admit`, except those of model and queue.

        Raises:
            BridgeError: limits, evaluators or data set are refused; nothing was started.
        """
        evaluators = await self.check_without_data(planned)
        loaded = await self._until_drained(self.preparer.load(planned.dataset, evaluators))
        await self._until_drained(self.preparer.prompter(planned, evaluators, loaded))

    async def check_without_data(self, planned: PlannedEvaluation) -> tuple[tuple[EvaluatorSpec, Evaluator], ...]:
        """The part of `check` that reads no data set; returns the evaluators.

        Raises:
            BridgeError: limits or evaluators are refused; nothing was started.
        """
        _refuse_above(self._limits.max_concurrency, planned.limits.concurrency)
        evaluators = await self.preparer.evaluators(planned)
        refuse_without_caller(evaluators, None)
        return evaluators

    async def read(self, dataset: Dataset) -> LoadedDataset:
        """The samples of a data set, as an evaluation would get them.

        Raises:
            BridgeError: see `datasets.loading.load`.
        """
        return await self._until_drained(self.preparer.load(dataset))

    async def _until_drained(self, preparing: Awaitable[T]) -> T:
        try:
            return await preparing
        except Cancelled:
            if self.draining:
                raise draining_error() from None
            raise

    async def render(self, request: EvaluateRequest, sample_id: str) -> RenderSampleResponse:
        """Show what the model would get of a sample; see `render_sample`.

        Raises:
            BridgeError: the request could not be run, or has no such sample.
        """
        self.refuse_if_unable(request.evaluation_id)
        return await render_sample(self.preparer, request, sample_id)

    async def admit(
        self,
        request: EvaluateRequest,
        *,
        waited: bool = False,
        recorded: bool = False,
        by_itself: bool = False,
        caller: Caller | None = None,
    ) -> tuple[EvaluationRow, bool]:
        """Start or resume an evaluation, unless it has ended or has an owner; the flag says whether it existed already.

        Args:
            request: what to run; its id is set.
            waited: the caller has waited for this evaluation, which lost its owner: a full queue does not refuse it.
            recorded: the request is that of its record: loggers that this worker refuses are left out.
            by_itself: no call asks for it: what is recorded of its interruptions stays.
            caller: whoever stays connected, as the model or parts of evaluators stay there.

        Raises:
            BridgeError: it cannot be run; nothing was started.
        """
        claim = self._claim(
            request, time.monotonic(), waited=waited, recorded=recorded, by_itself=by_itself, caller=caller
        )
        return await self._shielded(request.evaluation_id, claim)

    async def enqueue(
        self, request: EvaluateRequest, also: Callable[[Transaction], None], *, again: bool = True
    ) -> tuple[EvaluationRow, bool]:
        """As `admit`, without waiting: the attempt itself reads the data set and opens the model, or fails.

        Args:
            request: what to run; its id is set.
            also: runs in the transaction that creates or resumes the evaluation; if it raises, both are rolled back.
            again: whether to run one again that has failed; see `claims.fails_for_now`.

        Raises:
            BridgeError: a check that needs no data refuses it; nothing was started.
        """
        return await self._shielded(request.evaluation_id, self._enqueue(request, time.monotonic(), also, again))

    async def _shielded(
        self, evaluation_id: str, claim: Coroutine[object, object, tuple[EvaluationRow, bool]]
    ) -> tuple[EvaluationRow, bool]:
        # In a separate task: a caller that disconnects in the middle must not leave a claim without an attempt.
        task = asyncio.create_task(claim)
        self._claims.add(task)
        task.add_done_callback(self._claimed)
        try:
            return await asyncio.shield(task)
        except Cancelled:
            self.refuse_if_unable(evaluation_id)
            raise

    def _claimed(self, task: asyncio.Task[tuple[EvaluationRow, bool]]) -> None:
        self._claims.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The caller receives it too, unless it has disconnected.
            _log.debug("not_admitted", error=str(error))

    def refuse_if_unable(self, evaluation_id: str) -> None:
        """Raise Unavailable while nothing can be started or resumed here."""
        error = None
        if self.draining:
            error = draining_error()
        elif not self._journal.writable:
            error = JournalUnavailable("the journal cannot be written")
        if error is not None:
            error.metadata["evaluation_id"] = evaluation_id
            raise error

    async def apply_requests(self) -> None:
        """Apply to attempts what callers of other workers have asked: cancels, pauses, another concurrency.

        Runs until it is cancelled itself.
        """
        seen, outages = self._journal.commits.count, LogOnce(_log, "cancels_not_read")
        while True:
            if self._attempts:
                try:
                    cancels, controls = await self._journal.read(_asked)
                    outages.worked()
                except JournalUnavailable as error:  # checked again after the next commit of any worker
                    outages.failed(error)
                    cancels, controls = [], {}
                for number, reason in cancels:
                    self.stop(number, reason)
                for number, control in controls.items():
                    self.control(number, control)
                await asyncio.sleep(CANCEL_CHECK_SECONDS)
            seen = await self._journal.commits.wait(seen, at_most=60.0)

    def stop(self, number: int, reason: str) -> None:
        """Cancel this worker's attempt at an evaluation, if it has one."""
        attempt = self._attempts.get(number)
        if attempt is not None:
            message = shorten(reason, MAX_PROBLEM_BYTES) or "cancelled"
            attempt.stop(Ending.CANCEL, Problem(reason=Reason.CANCELLED, message=message))

    def control(self, number: int, control: Control) -> None:
        """Apply what callers have set to this worker's attempt at an evaluation, if it has one."""
        if (attempt := self._attempts.get(number)) is not None:
            attempt.apply(control)

    def refuse_above_limit(self, concurrency: int, field: str) -> None:
        """Raise InvalidField if this worker's limit of samples at work at once is lower.

        Args:
            concurrency: as a caller wants it.
            field: its name, as the caller wrote it.
        """
        _refuse_above(self._limits.max_concurrency, concurrency, field)

    def release(self, caller: Caller, problem: Problem) -> None:
        """Interrupt this worker's attempt that asks a caller, if there is one: the caller has disconnected."""
        for attempt in tuple(self._attempts.values()):
            if attempt.caller is caller:
                attempt.stop(Ending.LEFT, problem)

    async def drain(self) -> Sequence[str]:
        """Refuse new evaluations and interrupt the running ones; returns their ids once that is committed."""
        self.draining = True
        attempts = list(self._attempts.values())
        for attempt in attempts:
            self._stop_by_drain(attempt)
        self.preparer.close()
        for attempt in attempts:
            await attempt.finished.wait()
        # A claim under way is refused. If it is being written already, its attempt is stopped as soon as it begins.
        while self._claims:
            await asyncio.wait(self._claims)
        late = [attempt for attempt in self._attempts.values() if attempt not in attempts]
        for attempt in late:
            await attempt.finished.wait()
        return [attempt.row.evaluation_id for attempt in (*attempts, *late)]

    async def _claim(
        self,
        request: EvaluateRequest,
        received: float,
        *,
        waited: bool,
        recorded: bool,
        by_itself: bool,
        caller: Caller | None,
    ) -> tuple[EvaluationRow, bool]:
        identity, row = await self._find(request, queues=not waited)
        if row is not None and await self._is_there(row, again=not waited):
            if not waited:
                await self._refuse_written_again(row, request.model)
                await self._refuse_moved(row)
            return row, True
        if not waited:
            self._refuse_if_full()
        self._preparing += 1
        deadline = asyncio.timeout_at(_deadline(request, row, received))
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with deadline:  # it does not wait for other claims either
                    await stack.enter_async_context(self._claimants.begun(CLAIM_SECONDS))
                    request = await self._with_loggers(request, recorded=recorded)
                    evaluators = await self.preparer.evaluators(request)
                    refuse_without_caller(evaluators, caller)
                    for kind, name in () if caller is None else unused_parts(evaluators, caller):
                        _log.warning(
                            "caller_part_not_used", evaluation_id=request.evaluation_id, kind=str(kind), name=name
                        )
                    if row is None:
                        self.preparer.refuse_unpriced(request, evaluators)  # before a server is queried
                        await refuse_without_likelihoods(self.preparer, request, evaluators)
                    else:
                        self._refuse_unpriced(row, request, evaluators)
                    plan = await self.preparer.prepare(request, evaluators, caller)
                taken_on = await self._take_on(
                    request, plan, evaluators, identity, received, again=not waited, by_itself=by_itself
                )
            if caller is not None and caller.gone:
                self.release(caller, CALLER_LEFT)
            return taken_on
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeadlineExceeded(
                f"deadline_ms, {request.limits.deadline_ms}, was over before data set and model were found",
                field="limits.deadline_ms",
                metadata={"evaluation_id": request.evaluation_id},
            ) from None
        finally:
            self._preparing -= 1

    async def _enqueue(
        self, request: EvaluateRequest, received: float, also: Callable[[Transaction], None], again: bool
    ) -> tuple[EvaluationRow, bool]:
        identity, row = await self._find(request, queues=True)
        if row is not None and await self._is_there(row, again=again):
            return row, True
        self._refuse_if_full()
        self._preparing += 1
        try:
            async with self._claimants.begun(CLAIM_SECONDS):
                request = await self._with_loggers(request)
                evaluators = await self.preparer.evaluators(request)
                refuse_without_caller(evaluators, None)
                await self.preparer.check_models(request, evaluators)
                if row is None:
                    await refuse_without_likelihoods(self.preparer, request, evaluators)
                else:
                    self._refuse_unpriced(row, request, evaluators)
                prepare = functools.partial(self.preparer.prepare, request, evaluators)
                return await self._take_on(request, prepare, evaluators, identity, received, also, again=again)
        finally:
            self._preparing -= 1

    def _refuse_unpriced(
        self,
        row: EvaluationRow,
        request: EvaluateRequest,
        evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...],
    ) -> None:
        """Refuse to continue what has a bound of the cost, which stands, where a model has no price here."""
        kept = request_from_record(row.request, row.apart).limits
        self.preparer.refuse_unpriced(dataclasses.replace(request, limits=kept), evaluators)

    async def check_loggers(self, log_to: Sequence[str]) -> None:
        """Refuse loggers that a request may not name, or that this worker cannot run.

        Raises:
            BridgeError: the field is the entry of `log_to`.
        """
        await self._loggers.check(log_to)

    async def _with_loggers(self, request: EvaluateRequest, *, recorded: bool = False) -> EvaluateRequest:
        """The request with the loggers of the operator if it names none.

        A recorded request may have those of another worker's operator. What this worker refuses of them is left out.

        Raises:
            BridgeError: one of those that it names is refused.
        """
        named: list[str] = []
        for text in request.log_to if recorded else ():
            try:
                await self.check_loggers([text])
                named.append(text)
            except BridgeError as error:
                _log.warning("logger_left_out", evaluation_id=request.evaluation_id, reason=error.message)
        if not recorded:
            await self.check_loggers(request.log_to)
            named += request.log_to
        return dataclasses.replace(request, log_to=tuple(named) or self._loggers.log_to)

    async def _find(self, request: EvaluateRequest, *, queues: bool) -> tuple[str, EvaluationRow | None]:
        """The fingerprint of a request, and the current row of its evaluation; None if there is none.

        Args:
            request: what to run.
            queues: a full queue refuses a new evaluation, at once.
        """
        self.refuse_if_unable(request.evaluation_id)
        _refuse_above(self._limits.max_concurrency, request.limits.concurrency)
        row = await self._journal.read(find, request.evaluation_id)
        if row is None and queues:
            self._refuse_if_full()
        identity = await self.preparer.identify(request)
        if row is None:
            return identity, None
        claims.refuse_other_specification(row, request, identity)
        return identity, await self._reaper.reap(row)

    async def _is_there(self, row: EvaluationRow, *, again: bool = True) -> bool:
        """Whether an evaluation has ended or is at work, so that nothing is to be started.

        Args:
            row: the evaluation.
            again: whether to run one again that has failed; see `claims.fails_for_now`.

        Raises:
            FailedPrecondition: it is neither, and other rules have begun it (RULES_CHANGED).
            Unavailable: it is neither, and a model was away until a moment ago (MODEL_OUTAGE).
        """
        ended = row.state.terminal and not (again and claims.fails_for_now(row))
        if ended:
            return True
        attempt = self._attempts.get(row.number)
        if row.state is EvaluationState.INTERRUPTED and attempt is not None and attempt.row.attempt == row.attempt:
            # Its interruption is written, and its lock is about to be released.
            await attempt.finished.wait()
        if not await self._locks.looks_free(row.number):
            return True
        if (attempt := self._attempts.get(row.number)) is not None:
            # It is about to end, or no longer the owner: the next one begins after it, also here.
            await attempt.finished.wait()
        refuse_other_rules(row)
        controls.refuse_too_early(row)
        return False

    async def _refuse_written_again(self, row: EvaluationRow, model: ModelRef) -> None:
        """Refuse to give the numbers of files that are gone as those of the files that are there.

        Raises:
            FailedPrecondition: the evaluation is completed, and its directory has other files since (MODEL_CHANGED).
        """
        if row.state is not EvaluationState.COMPLETED:
            return
        recorded = model_part(row.model_fingerprint)
        found = await self.preparer.present_fingerprint(model)
        if found is not None and same(recorded, found) is False:
            raise FailedPrecondition(
                f"{row.evaluation_id!r} has evaluated other files of this directory, which has been written again: "
                "take another id for those that are there now; the results of this one can still be read",
                reason=Reason.MODEL_CHANGED,
                field="model",
                metadata={"fingerprint": recorded, "present_fingerprint": found},
            )

    async def _refuse_moved(self, row: EvaluationRow) -> None:
        """Refuse to give the numbers of a server as those of one that is elsewhere.

        Raises:
            FailedPrecondition: a server of the evaluation is at another address here (MODEL_CHANGED).
        """
        kept = await self._journal.read(find_rendering, row.number)
        if kept is not None:
            claims.refuse_other_servers(kept.servers, self.preparer.places(server.name for server in kept.servers))

    async def _take_on(
        self,
        request: EvaluateRequest,
        plan: Plan | Prepare,
        evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...],
        identity: str,
        received: float,
        also: Callable[[Transaction], None] = _write_nothing,
        *,
        again: bool = True,
        by_itself: bool = False,
    ) -> tuple[EvaluationRow, bool]:
        self.refuse_if_unable(request.evaluation_id)
        graders = self.preparer.graders(request)
        places = self.preparer.places_of(request, evaluators)

        def claim(transaction: Transaction) -> claims.Claim:
            also(transaction)
            return claims.claim(
                transaction,
                self._locks,
                request,
                fingerprint=identity,
                contents=plan.contents if isinstance(plan, Plan) else None,
                worker_id=self._worker_id,
                graders=graders,
                places=places,
                again=again,
                by_itself=by_itself,
            )

        claimed = await self._journal.submit(claim)
        if claimed.owned:
            # The record has the limits in force: those of this request, with the deadline of the first request.
            limits = request_from_record(claimed.row.request).limits
            self._run(
                Attempt(
                    self._journal,
                    self._locks,
                    claimed.row,
                    dataclasses.replace(request, limits=limits),
                    plan,
                    turns=self.turns,
                    limits=self._limits,
                    worker_id=self._worker_id,
                    received=received,
                    prices=self.preparer.prices,
                    run_budgets=self._run_budgets,
                )
            )
        return claimed.row, claimed.existed

    def _run(self, attempt: Attempt) -> None:
        self._attempts[attempt.row.number] = attempt
        attempt.start(on_finished=lambda: self._ended(attempt))
        if self.draining:
            self._stop_by_drain(attempt)

    def _stop_by_drain(self, attempt: Attempt) -> None:
        attempt.stop(Ending.USER if self.held else Ending.DRAIN, _DRAINING)

    def _ended(self, attempt: Attempt) -> None:
        if self._attempts.get(attempt.row.number) is attempt:
            del self._attempts[attempt.row.number]
        model, usage = attempt.taken
        self._spending.count(usage, model)

    def _refuse_if_full(self) -> None:
        most = self._limits.max_running_evaluations + self._limits.max_queued_evaluations
        # Evaluations in preparation count: concurrent requests must not all take the same free place.
        taken = len(self._attempts) + self._preparing
        if taken >= most:
            raise ResourceExhausted(
                f"{taken} evaluations run or wait, the limit of max_queued_evaluations is "
                f"{self._limits.max_queued_evaluations}",
                reason=Reason.QUEUE_FULL,
                retry_after=random.uniform(*QUEUE_RETRY_SECONDS),
            )


def _deadline(request: EvaluateRequest, row: EvaluationRow | None, received: float) -> float | None:
    """When `deadline_ms` is over, by the loop's clock: that of the first request, less the time of earlier attempts.

    None if there is none, or the evaluation is paused.
    """
    first, used_ns = request, 0
    if row is not None:
        if row.paused:
            return None
        first, used_ns = request_from_record(row.request), row.past_active_ns + row.active_ns
    deadline_ms = first.limits.deadline_ms
    return None if deadline_ms is None else received + deadline_ms / 1000 - used_ns / 1e9


def _refuse_above(limit: int, concurrency: int | None, field: str = "limits.concurrency") -> None:
    if concurrency is not None and concurrency > limit:
        raise InvalidField(field, f"is {concurrency}, the limit of max_concurrency is {limit}")


def _asked(connection: Reads) -> tuple[list[tuple[int, str]], Mapping[int, Control]]:
    """Of the evaluations at work: reasons of cancels, and what callers have set."""
    cancels = connection.execute(
        """SELECT number, cancel_reason FROM evaluations
           WHERE state IN ('queued', 'running') AND cancel_reason IS NOT NULL"""
    ).fetchall()
    return cancels, controls_at_work(connection)
