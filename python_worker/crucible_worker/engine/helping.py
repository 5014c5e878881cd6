"""Work for evaluations that other workers lead: a worker with `--share-work` leases parts of them.

A helper never begins an evaluation, and ends none, unless its lead is gone: then it becomes the lead itself. It takes a
turn among the evaluations that run at this worker, and leaves when one of these waits for its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import structlog

from crucible_bridge.errors import AlreadyExists, BridgeError, Cancelled, FailedPrecondition, NotFound
from crucible_bridge.problems import MAX_PROBLEM_BYTES, error_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest, EvaluationState, InlineDataset, ModelRef, Problem, Usage
from crucible_worker.engine import claims
from crucible_worker.engine.auxiliary_models import Unloaded, name_of
from crucible_worker.engine.caller_parts import refuse_without_caller
from crucible_worker.engine.controls import Control, control_of
from crucible_worker.engine.endings import Ending
from crucible_worker.engine.engine import Attempt
from crucible_worker.engine.evaluation_owners import EvaluationOwners
from crucible_worker.engine.leased_items import DEAD_CHECK_SECONDS, PARTS_PAUSE_SECONDS
from crucible_worker.engine.parts_run import PartsRun
from crucible_worker.engine.preparation import Plan, Preparer
from crucible_worker.engine.sample_runs import close_processes, get_ready
from crucible_worker.engine.spans import recorded_spans
from crucible_worker.engine.throttle import Throttle
from crucible_worker.history import lifecycle
from crucible_worker.history.rules import refuse_other_rules
from crucible_worker.inference.calls import CallGate
from crucible_worker.inference.outages import ModelOutages, Outage
from crucible_worker.journal import Journal, JournalUnavailable, Transaction, part_samples, parts
from crucible_worker.journal.queries import Reads, Row, find_by_number
from crucible_worker.journal.records import request_from_record
from crucible_worker.util.alarms import Alarms
from crucible_worker.util.faults import logged
from crucible_worker.util.limits import WorkerLimits

__all__ = ["Help", "Helpers", "Lead"]

OFFER_CHECK_SECONDS = 1.0
"""Seconds between two looks for parts without news of the journal."""
RETURN_SECONDS = 30.0
"""Seconds until a worker tries again to help with what it could not, by an error that may pass."""
OFFER_PAUSE_SECONDS = 0.1
"""Shortest time between two looks for parts of evaluations that this worker does not help with yet."""

Lead = Callable[[Row, EvaluateRequest, PartsRun], Attempt]
"""Leads an evaluation whose lead this worker has become, with its share of it."""

_LIVE = (EvaluationState.QUEUED, EvaluationState.RUNNING)
_LEFT = Problem(reason=Reason.DRAINING, message="the worker drains, or left it", retryable=True)
_log = structlog.get_logger(__name__)


class Help:
    """This worker's help with one evaluation; call `run` once."""

    def __init__(
        self,
        journal: Journal,
        owners: EvaluationOwners,
        row: Row,
        request: EvaluateRequest,
        plan: Plan,
        *,
        limits: WorkerLimits,
        worker_id: str,
        lead: Lead,
    ) -> None:
        """See the module.

        Args:
            journal: where the evaluation is recorded.
            owners: this worker's.
            row: the evaluation.
            request: what to run.
            plan: what to run, ready but for its models.
            limits: the worker's.
            worker_id: the worker's.
            lead: called if this worker becomes the lead.
        """
        self.leave_wanted = False
        """Set it to let the samples at work end, and leave."""
        self._journal, self._owners, self._row, self._request, self._plan = journal, owners, row, request, plan
        self._limits, self._worker_id, self._lead = limits, worker_id, lead
        self._alarms = Alarms()
        outages = ModelOutages(
            self, self._alarms, seconds=limits.outage_seconds, name_of=lambda model: name_of(model, plan, request.model)
        )
        self._gate = CallGate(row.total, outages)
        self._over = asyncio.Event()
        self._share: PartsRun | None = None
        self._attempt: Attempt | None = None
        self._promoting: asyncio.Future[Row | None] | None = None
        self._looked = 0.0
        self._problem: Problem | None = None

    @property
    def taken(self) -> tuple[ModelRef, Usage | None]:
        """The model, and the usage of it and of judges by this worker, as far as that is committed."""
        return self._request.model, None if self._share is None else self._share.spent.here

    @property
    def leads(self) -> bool:
        """Whether this worker has become the lead."""
        return self._attempt is not None

    def stop(self) -> None:
        """End it at once; what is not done goes back."""
        self._over.set()

    def model_away(self, outage: Outage) -> None:
        """See `OutageListener`: others may reach it, so this worker leaves, unless it leads."""
        if self._attempt is not None:
            self._attempt.model_away(outage)
        else:
            message = shorten(f"{outage.name} does not answer: {outage.message}", MAX_PROBLEM_BYTES)
            self._leaves(Problem(reason=Reason.MODEL_OUTAGE, message=message, retryable=True))

    def model_back(self, outage: Outage) -> None:
        """See `OutageListener`."""
        if self._attempt is not None:
            self._attempt.model_back(outage)

    def model_gone(self, outage: Outage) -> None:
        """See `OutageListener`."""
        if self._attempt is not None:
            self._attempt.model_gone(outage)

    async def run(self) -> None:
        """Help until the evaluation has ended, or something stops this.

        Raises:
            BridgeError: this worker cannot run the evaluation, or not any more.
            JournalUnavailable: the journal cannot be read, or not be written.
        """
        ending = asyncio.create_task(self._over.wait())
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self.leads:
                working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
        finally:
            ending.cancel()
            working.cancel()
            if self._share is not None:
                await self._end(self._share)
            self._gate.close()
            self._alarms.close()
            close_processes(self._plan)
        if self._problem is not None:
            raise error_of(self._problem)

    async def _work(self) -> None:
        journal, row, limits = self._journal, self._row, self._limits
        samples = await get_ready(
            journal,
            row,
            self._request,
            self._plan,
            gate=self._gate,
            alarms=self._alarms,
            limits=limits,
            seconds_left=lambda: None,
        )
        told = await journal.read(recorded_spans, row.number)
        _refuse_unfit(samples.plan, ended=[index for index, record in told.items() if record is not None])
        throttle = Throttle(
            await journal.read(control_of, row.number),
            asked=self._request.limits.concurrency or limits.default_concurrency,
            most=limits.max_concurrency,
            since=asyncio.get_running_loop().time(),
        )
        self._share = PartsRun(
            journal,
            self._owners,
            row,
            samples,
            throttle,
            worker_id=self._worker_id,
            begun=told,
            failed=self._fail,
            promoted=self._promote,
            leaves=self._leaves,
        )
        self._share.attend()
        self._share.start()
        await self._watch(self._share)

    async def _watch(self, share: PartsRun) -> None:
        """Run parts until the evaluation has ended, or this is stopped; become the lead if there is none."""
        news, loop = self._journal.news, asyncio.get_running_loop()
        seen, self._looked = news.count, loop.time()
        while not self._over.is_set() and self._attempt is None:
            try:
                if not await self._goes_on(share):
                    return
            except JournalUnavailable as error:  # if it lasts, no result can be written either
                _log.debug("evaluation_not_read", reason=error.reason)
            seen = await news.wait(seen, DEAD_CHECK_SECONDS)
            await asyncio.sleep(PARTS_PAUSE_SECONDS)
        if self._attempt is not None:
            await self._attempt.finished.wait()

    async def _goes_on(self, share: PartsRun) -> bool:
        """Heed what callers have set, and look for the lead; False if there is nothing to do here any more."""
        number, now = self._row.number, asyncio.get_running_loop().time()
        control = await self._journal.read(_standing, number, self._row.attempt)
        if control is None:
            return False
        share.heed(control)
        if now - self._looked >= DEAD_CHECK_SECONDS:
            self._looked = now
            if await self._owners.leads.looks_free(number):
                await self._try_to_lead()
        if self.leave_wanted and self._attempt is None:
            await share.leave()
            return self._attempt is not None
        return True

    async def _try_to_lead(self) -> None:
        """Become the lead if there is none; if this is cancelled meanwhile, `_end` waits for what becomes of it."""
        self._promoting = self._journal.submit(lambda now: claims.promote(now, self._owners, self._row))
        self._promoting.add_done_callback(self._promoted_now)
        await asyncio.wait([self._promoting])

    def _promoted_now(self, promoting: asyncio.Future[Row | None]) -> None:
        error = promoting.exception()
        if error is not None:
            self._fail(error)
        elif (row := promoting.result()) is not None:
            self._promote(row)

    async def _end(self, share: PartsRun) -> None:
        """Give back what is not done; if no lease of the evaluation lives then, it is interrupted."""
        share.close()
        await share.until_written()
        if self._promoting is not None:
            await asyncio.wait([self._promoting])
        if self._attempt is not None:
            self._attempt.stop(Ending.DRAIN, _LEFT)  # unless it has ended
            await self._attempt.finished.wait()

        def leave(transaction: Transaction) -> None:
            share.give_back(transaction)
            with contextlib.suppress(NotFound):
                lifecycle.reap(transaction, self._owners, self._row.number)

        try:
            await self._journal.submit(leave)
        except JournalUnavailable as error:
            _log.warning("parts_not_given_back", reason=error.reason)
        finally:
            share.release()

    def _promote(self, row: Row) -> None:
        assert self._share is not None
        _log.info("evaluation_led_from_now_on", reason="its lead is gone")
        self._attempt = self._lead(row, self._request, self._share)

    def _leaves(self, problem: Problem) -> bool:
        if self._attempt is not None:  # the lead records it, as a single worker does
            return False
        self._problem = problem
        self._over.set()
        return True

    def _fail(self, error: BaseException) -> None:
        if self._attempt is not None:
            self._attempt.fail(error)
            return
        if self._over.is_set():  # the first cause counts: each result that is on its way fails likewise
            return
        if not isinstance(error, JournalUnavailable):
            logged(_log, "help_failed", error)
        elif not isinstance(error, parts.PartGone):  # the evaluation has ended, or continues without this worker
            _log.warning("help_ended", reason=str(error))
        self._over.set()


class Helpers:
    """The evaluations of other workers with which this worker helps."""

    def __init__(
        self,
        journal: Journal,
        owners: EvaluationOwners,
        preparer: Preparer,
        *,
        turns: asyncio.Semaphore,
        limits: WorkerLimits,
        worker_id: str,
        leads: Callable[[int], bool],
        wanted: Callable[[], bool],
        lead: Lead,
        count: Callable[[Usage | None, ModelRef], None],
    ) -> None:
        """See the module.

        Args:
            journal: where evaluations are recorded.
            owners: this worker's.
            preparer: makes plans.
            turns: a semaphore of as many places as evaluations may run at once.
            limits: the worker's.
            worker_id: the worker's.
            leads: whether this worker leads an evaluation, by its number.
            wanted: whether an evaluation of this worker waits for its turn.
            lead: called if this worker becomes the lead of an evaluation.
            count: gets what each help has spent, at its end.
        """
        self._journal, self._owners, self._preparer, self._turns = journal, owners, preparer, turns
        self._limits, self._worker_id, self._count = limits, worker_id, count
        self._leads, self._wanted, self._lead = leads, wanted, lead
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._at_work: dict[int, Help] = {}
        self._refused: dict[tuple[int, int], float] = {}
        self._draining = False

    @property
    def taken(self) -> Iterable[tuple[ModelRef, Usage | None]]:
        """What is being spent by this worker for evaluations of others, by model."""
        return [help.taken for help in self._at_work.values()]

    @property
    def running(self) -> int:
        """Evaluations of other workers of which this worker runs parts."""
        return sum(not help.leads for help in self._at_work.values())

    async def offer(self) -> None:
        """Look for parts to run; runs until it is cancelled, or the journal is closed."""
        news = self._journal.news
        seen = news.count
        while not self._draining:
            try:
                self._begin(await self._journal.read(parts.offered))
                seen = await news.wait(seen, OFFER_CHECK_SECONDS)
            except JournalUnavailable as error:
                if error.reason == Reason.DRAINING:
                    return
                _log.debug("parts_not_read", reason=error.reason)
            await asyncio.sleep(OFFER_PAUSE_SECONDS)

    async def drain(self) -> None:
        """Help no more; what is not done goes back."""
        self._draining = True
        for help in self._at_work.values():
            help.stop()
        for number, task in self._tasks.items():
            if number not in self._at_work:  # it is being prepared
                task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _begin(self, offered: Sequence[tuple[int, int]]) -> None:
        now = asyncio.get_running_loop().time()
        self._refused = {one: until for one, until in self._refused.items() if one in offered and until > now}
        if self._wanted():
            for help in self._at_work.values():
                if not help.leads and self._turns.locked():
                    help.leave_wanted = True
                    break
            return
        for number, attempt in offered:
            known = number in self._tasks or (number, attempt) in self._refused or self._leads(number)
            if known or self._draining or self._turns.locked():
                continue
            task = asyncio.create_task(self._help(number, attempt), name=f"help-{number}")
            self._tasks[number] = task
            task.add_done_callback(lambda _, number=number: self._tasks.pop(number))

    async def _help(self, number: int, attempt: int) -> None:
        try:
            try:
                row = await self._journal.read(find_by_number, number)
            except NotFound:  # removed meanwhile
                return
            structlog.contextvars.bind_contextvars(evaluation_id=row.evaluation_id, run_id=row.run_id)
            refuse_other_rules(row)
            request = await self._request(row)
            evaluators = await self._preparer.evaluators(request)
            refuse_without_caller(evaluators, None)
            plan = await self._preparer.prepare(request, evaluators)
            await self._journal.read(claims.refuse_other_contents, row, plan.contents)
            if not self._turns.locked() and not self._draining:
                async with self._turns:
                    await self._work(row, request, plan)
        except (Cancelled, JournalUnavailable) as error:
            _log.debug("help_not_given", reason=str(error))
        except BridgeError as error:
            again = asyncio.get_running_loop().time() + RETURN_SECONDS if error.retryable else math.inf
            self._refused[number, attempt] = again
            _log.warning("cannot_help", reason=error.reason, message=str(error))
        except Exception as error:
            self._refused[number, attempt] = math.inf
            logged(_log, "help_failed", error)

    async def _request(self, row: Row) -> EvaluateRequest:
        """What an evaluation runs, as its lead was asked.

        Raises:
            AlreadyExists: the journal does not have all of it.
        """
        request = request_from_record(row.request, row.apart)
        if isinstance(request.dataset.source, InlineDataset):
            source = InlineDataset(await self._journal.read(part_samples.read, row.number))
            request = dataclasses.replace(request, dataset=dataclasses.replace(request.dataset, source=source))
        if await self._preparer.identify(request) != row.fingerprint:
            raise AlreadyExists("the journal has another request", reason=Reason.OTHER_SPECIFICATION)
        return request

    async def _work(self, row: Row, request: EvaluateRequest, plan: Plan) -> None:
        help = self._at_work[row.number] = Help(
            self._journal,
            self._owners,
            row,
            request,
            plan,
            limits=self._limits,
            worker_id=self._worker_id,
            lead=self._lead,
        )
        _log.info("help_begins", attempt=row.attempt)
        try:
            await help.run()
        finally:
            del self._at_work[row.number]
            model, usage = help.taken
            self._count(usage, model)


def _standing(source: Reads, number: int, attempt: int) -> Control | None:
    """What callers have set for an evaluation; None if this attempt has ended, or is to end."""
    sql = "SELECT state, attempt, cancel_reason FROM evaluations WHERE number = ?"
    found = source.execute(sql, (number,)).fetchone()
    if found is None or found[0] not in _LIVE or found[1] != attempt or found[2] is not None:
        return None
    return control_of(source, number)


def _refuse_unfit(plan: Plan, *, ended: Sequence[int]) -> None:
    """Refuse a plan of which an evaluator cannot run at this worker as it does at the lead.

    Raises:
        FailedPrecondition: a model does not suit it here, or could not be loaded.
    """
    for index, (spec, _) in enumerate(plan.evaluators):
        others = plan.auxiliary_models.get(index, {}).values()
        if index not in ended and (index in plan.refused or any(isinstance(model, Unloaded) for model in others)):
            problem = plan.refused.get(index)
            why = "a further model of it could not be loaded" if problem is None else problem.message
            reason = Reason.EVALUATOR_FAILED if problem is None else problem.reason
            raise FailedPrecondition(f"{spec.label} cannot run at this worker: {why}", reason=reason)
