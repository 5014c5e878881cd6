"""All evaluations that this worker knows, its own and other workers': the interface for services, CLI and tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib.metadata
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CompareRequest,
    Dataset,
    EvaluateRequest,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    EvaluatorInfo,
    FindSamplesRequest,
    FindSamplesResponse,
    ModelUsage,
    RenderSampleResponse,
    ReportFormat,
    SampleResult,
    Verdict,
)
from crucible_worker.analysis.comparison import Comparisons
from crucible_worker.analysis.sample_search import SampleSearches
from crucible_worker.backends.orchestrator import Caller
from crucible_worker.datasets.loading import LoadedDataset
from crucible_worker.engine import claims
from crucible_worker.engine.admission import Admission, draining_error
from crucible_worker.engine.caller_models import CallerConnection, connect_caller
from crucible_worker.engine.claims import EvaluationOwners
from crucible_worker.engine.controls import Control, set_concurrency, set_paused
from crucible_worker.engine.log_files import LogFiles
from crucible_worker.engine.phases import Phase
from crucible_worker.engine.preparation import Sources
from crucible_worker.engine.resuming import Resuming, recorded_request
from crucible_worker.engine.usage import Spending
from crucible_worker.evaluators.registry import info_if_known
from crucible_worker.events.run_events import Notes
from crucible_worker.events.streams import Attach, EventFilter, EventPage, Look, OwnEvents, follow
from crucible_worker.experiments.experiments import Experiments
from crucible_worker.history import lifecycle, retention
from crucible_worker.history.lifecycle import Reaper
from crucible_worker.history.retention import remove_forgotten
from crucible_worker.history.run_registry import RunRegistry
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.queries import (
    SAMPLE_PAGE_BYTES,
    EvaluationRow,
    Head,
    evaluation_of,
    extent_of,
    find,
    find_by_number,
    find_rendering,
    list_rows,
    read_samples,
)
from crucible_worker.journal.records import Joint
from crucible_worker.journal.uptime import UptimeClock
from crucible_worker.planning.follow_records import FollowRecords
from crucible_worker.planning.patience import Patient
from crucible_worker.planning.plans import TOUCH_SECONDS, DecodePlan, EncodePlan, EvaluationPlans, PatternPlan
from crucible_worker.reports.writing import ReportRequest, write_report
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.shown_paths import ShownPaths

__all__ = ["CANCEL_WAIT_SECONDS", "NEWS_PAUSE_SECONDS", "OWNER_CHECK_SECONDS", "Evaluations"]

OWNER_CHECK_SECONDS = 1.0
"""Seconds between two checks of the owner's lock while a call waits for an evaluation."""
_NONE: Mapping[str, float | int] = {}
CANCEL_WAIT_SECONDS = 1.0
"""How long a cancel waits for the owner to end the evaluation before it returns the current state."""
EVALUATIONS_PAGE = 1_000
"""Evaluations of a run that are read at once."""
NEWS_PAUSE_SECONDS = 0.01
"""Shortest time between two reads of the journal by one waiting call."""

_PAGES_PER_MESSAGE = 4
"""Pages are bounded by the size of their records: a message also has names and lengths, and the last result."""
_SETTLED = frozenset(state for state in EvaluationState if state.terminal or state is EvaluationState.INTERRUPTED)
_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Evaluations:
    """Open it with `Evaluations.open` inside a running event loop, close it with `aclose`."""

    def __init__(
        self,
        journal: Journal,
        locks: EvaluationOwners,
        sources: Sources,
        limits: WorkerLimits,
        experiments: Experiments,
    ) -> None:
        """See `open`."""
        self.experiments = experiments
        """What runs log, evaluations among them."""
        self.worker_id = uuid.uuid4().hex
        """A new one at each start."""
        self.on_writable_change: Callable[[bool], None] = lambda writable: None
        """Called on the loop when the journal becomes unwritable, and when it recovers."""
        self._known = functools.partial(info_if_known, parts=sources.parts)
        self.comparisons = Comparisons(journal, limits.max_compared_samples, self._known)
        """Comparisons of ended evaluations."""
        self._searches = SampleSearches(journal)
        self.registry = RunRegistry(journal, self._known)
        """Runs and their checkpoints."""
        self._journal, self._locks = journal, locks
        self._page_bytes = limits.max_message_bytes // _PAGES_PER_MESSAGE
        self._life = UptimeClock(journal.leads)
        self._notes = Notes(journal)
        self.note: Callable[[Event], None] = self._notes.add
        """Writes an event that belongs to no evaluation with the next batch; a SIGKILL may lose it."""
        self._reaper = Reaper(journal, locks)
        self.spending = Spending(sources.prices)
        """Usage by model since the start."""
        self._admission = Admission(
            journal,
            locks,
            self._reaper,
            sources,
            limits,
            self.worker_id,
            spending=self.spending,
            loggers=experiments,
        )
        self._html_turn = asyncio.Lock()
        self.background = journal.background
        """The tasks of this worker that have no call."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed_after: int | None = None
        self._logs: LogFiles | None = None
        self._paths = ShownPaths()
        self._patient: Patient | None = None
        journal.on_writable_change = self._writable_changed

    @classmethod
    async def open(
        cls,
        state_dir: Path,
        encode_event: Callable[[Event], bytes],
        *,
        journal_url: str | None = None,
        sources: Sources,
        limits: WorkerLimits,
        log_dir: Path | None = None,
        model_roots: Sequence[Path] = (),
        log_to: Sequence[str] = (),
        feed_all: bool = True,
        resume_interrupted: bool = False,
    ) -> Evaluations:
        """Open the journal of a state directory, and record the interruption of evaluations whose owner has died.

        Args:
            state_dir: shared by every worker of the machine.
            encode_event: encodes an event to the bytes that are recorded and sent.
            journal_url: of a PostgreSQL database with the journal; the state directory has it if None.
            sources: where models and samples come from.
            limits: bounds.
            log_dir: folder for an Inspect log of each evaluation that ends here; none is written if None.
            model_roots: folders of local models: the file BEST of a plan is written below one of them.
            log_to: loggers of evaluations and experiments that name none; checked.
            feed_all: feed the loggers of all experiments of the journal, not only of those that are logged to here.
            resume_interrupted: resume evaluations without a call for them, as far as that can be done here.

        Raises:
            FailedPrecondition: the state directory or the database cannot be used.
        """
        journal = await Journal.open(state_dir, encode_event, url=journal_url)
        experiments = Experiments(journal, limits, log_to=log_to, feed_all=feed_all)
        evaluations = cls(journal, EvaluationOwners(journal), sources, limits, experiments)
        evaluations._paths = ShownPaths((*model_roots, *sources.data_roots))
        if log_dir is not None:
            evaluations._logs = LogFiles(journal, log_dir, evaluations._paths)
        evaluations._patient = Patient(journal, limits.max_compared_samples, evaluations._known, model_roots)
        await evaluations._reaper.reap_all()
        evaluations._keep("requests", evaluations._admission.apply_requests)
        if resume_interrupted:
            evaluations._keep("resumptions", Resuming(journal, evaluations._admission, evaluations._reaper).run)
        policy = retention.Retention(
            max_events=limits.max_events_retained,
            evaluation_seconds=limits.evaluation_retention_seconds,
            interrupted_seconds=limits.interrupted_retention_seconds,
            plan_seconds=limits.plan_retention_seconds and limits.plan_retention_seconds + TOUCH_SECONDS,
            run_seconds=limits.run_retention_seconds,
            grace_seconds=limits.retention_grace_seconds,
        )
        evaluations._keep(
            "retention", lambda: retention.keep_trimmed(journal, evaluations._locks, policy, evaluations._life)
        )
        return evaluations

    @property
    def draining(self) -> bool:
        """Whether new evaluations are refused."""
        return self._admission.draining

    @property
    def writable(self) -> bool:
        """Whether the journal can be written."""
        return self._journal.writable

    @property
    def log_id(self) -> str:
        """Identity of the journal's event log."""
        return self._journal.log_id

    def head(self) -> Head:
        """The journal's event log as a whole."""
        return self._journal.head()

    @property
    def load(self) -> tuple[int, int]:
        """Numbers of evaluations that run here, and that wait for their turn."""
        return self._admission.load

    def phase(self, evaluation_id: str) -> Phase | None:
        """What this worker does for an evaluation now; None if it does not run it."""
        return self._admission.phase(evaluation_id)

    @property
    def usage(self) -> tuple[ModelUsage, ...]:
        """Usage of this worker's models since it started, by model."""
        return self.spending.together(self._admission.taken)

    def written(self) -> OwnEvents:
        """The events that this worker itself writes from now on; call it once."""
        return OwnEvents(self._journal)

    def plans(self, encode: EncodePlan, decode: DecodePlan, patterns: Sequence[PatternPlan] = ()) -> EvaluationPlans:
        """The plans of this journal.

        Args:
            encode: encodes a plan to the bytes that are recorded.
            decode: decodes it.
            patterns: plans of runs that register none; the first one that fits counts.
        """
        return EvaluationPlans(self._journal, self._admission, encode, decode, patterns)

    def follow_records(self) -> FollowRecords:
        """The followed runs of this journal; its caller closes it before the journal."""
        return FollowRecords(self._journal, self._locks)

    async def read_dataset(self, dataset: Dataset) -> LoadedDataset:
        """The samples of a data set, as an evaluation would get them.

        Raises:
            BridgeError: see `datasets.loading.load`.
        """
        return await self._admission.read(dataset)

    async def start(self, request: EvaluateRequest, *, recorded: bool = False) -> tuple[Evaluation, bool]:
        """Start or resume an evaluation; the flag says whether it existed already.

        Args:
            request: what to run.
            recorded: the request is that of its record: loggers that this worker refuses are left out.

        Raises:
            BridgeError: the request cannot be run; nothing was started.
        """
        row, existed = await self._admission.admit(_identified(request), recorded=recorded)
        return evaluation_of(row), existed

    async def evaluate(self, request: EvaluateRequest) -> Evaluation:
        """Start an evaluation and wait for its end; resumes it when its owner dies.

        When the caller disconnects, the evaluation continues.

        Raises:
            BridgeError: the request cannot be run.
            Unavailable: this worker drains, or its journal cannot be written; the evaluation is interrupted.
        """
        request = _identified(request)
        # A call that times out while it waits reports the id, even one that was generated here.
        structlog.contextvars.bind_contextvars(evaluation_id=request.evaluation_id)
        waited = False
        while True:
            row, _ = await self._admission.admit(request, waited=waited)
            row, waited = await self._until_idle(row), True
            if row.state.terminal:
                return evaluation_of(row)
            self._admission.refuse_if_unable(row.evaluation_id)

    async def connect_caller(self, request: EvaluateRequest, caller: Caller) -> CallerConnection:
        """Start or resume an evaluation of which the caller has a part; it replaces an earlier caller at this worker.

        Raises:
            BridgeError: the request cannot be run, or the evaluation runs at another worker; nothing was started.
        """
        request = _identified(request)
        structlog.contextvars.bind_contextvars(evaluation_id=request.evaluation_id)
        return await connect_caller(self._admission, self._journal, self._locks, request, caller)

    async def render(self, request: EvaluateRequest, sample_id: str) -> RenderSampleResponse:
        """Show what the model would get of one sample, the first one if no id is given; nothing is started.

        Raises:
            BridgeError: the request could not be run, or has no such sample.
        """
        return await self._admission.render(request, sample_id)

    async def get(self, evaluation_id: str) -> Evaluation:
        """The current state of an evaluation.

        Raises:
            NotFound: no evaluation has this id.
        """
        return evaluation_of(await self._look_up(evaluation_id))

    async def joint(self, evaluation_id: str) -> Joint | None:
        """How the first sample's prompt and target meet; None if a template joins them, or that is not known.

        Raises:
            NotFound: no evaluation has this id.
        """
        found = await self._journal.read(find_rendering, (await self._look_up(evaluation_id)).number)
        return None if found is None else found.joint

    async def list(
        self,
        *,
        run_id: str | None = None,
        states: Sequence[EvaluationState] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        page_size: int,
        page_token: str = "",
    ) -> tuple[Sequence[Evaluation], str]:
        """Evaluations, newest first, and the token of the next page (empty at the end)."""
        if page_token and not (page_token.isascii() and page_token.isdigit() and len(page_token) < 19):
            raise InvalidField("page_token", "is not one that this call gave")
        await self._reaper.reap_all()
        rows, more = await self._journal.read(
            list_rows,
            run_id=run_id,
            states=states,
            from_step=from_step,
            to_step=to_step,
            before=int(page_token) if page_token else None,
            limit=page_size,
        )
        return [evaluation_of(row) for row in rows], str(rows[-1].number) if more else ""

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        evaluator: str | None = None,
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        """Samples of an evaluation in the data set's order, and the token of the next page (empty at the end).

        Without `records`, what is recorded of them besides their results is left out.
        """
        row = await self._look_up(evaluation_id)
        return await self._journal.read(
            read_samples,
            row.number,
            verdicts=verdicts,
            evaluator=evaluator,
            page_size=page_size,
            page_token=page_token,
            records=records,
            page_bytes=min(SAMPLE_PAGE_BYTES, self._page_bytes),
        )

    async def find_samples(self, request: FindSamplesRequest) -> FindSamplesResponse:
        """See `SampleSearches.find`."""
        number = (await self._look_up(request.evaluation_id)).number
        other = None if request.changed_from is None else (await self._look_up(request.changed_from)).number
        return await self._searches.find(number, other, request)

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        """Every evaluation of a run, the newest first."""
        found: list[Evaluation] = []
        token = ""
        while True:
            page, token = await self.list(run_id=run_id, page_size=EVALUATIONS_PAGE, page_token=token)
            found += page
            if not token:
                return found

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        """See `Comparisons.compare`."""
        return await self.comparisons.compare(request)

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        """Declarations of the known evaluators, by kind; read in a thread, as some must be imported."""
        found = await asyncio.to_thread(lambda: {kind: self._known(kind) for kind in kinds})
        return {kind: info for kind, info in found.items() if info is not None}

    async def report(self, request: ReportRequest, *, max_bytes: int) -> str:
        """Write a report; HTML reports one after the other, as each may be as large as a message.

        Raises:
            BridgeError: see `reports.writing.write_report`.
        """
        html = request.report_format is ReportFormat.HTML
        async with self._html_turn if html else contextlib.nullcontext():
            # In a thread, as it reads files.
            version = await asyncio.to_thread(importlib.metadata.version, "crucible-bridge")
            return await write_report(self, request, version=version, paths=self._paths, max_bytes=max_bytes)

    async def cancel(self, evaluation_id: str, reason: str) -> Evaluation:
        """End an evaluation early, whichever worker owns it; one that has ended is returned unchanged."""
        number = (await self._look_up(evaluation_id)).number
        row = await self._journal.submit(lambda now: lifecycle.cancel(now, self._locks, number, reason))
        if not row.state.terminal:
            self._admission.stop(number, reason)
            with contextlib.suppress(TimeoutError):  # the owner is slow: return the current state
                async with asyncio.timeout(CANCEL_WAIT_SECONDS):
                    row = await self._until_idle(row)
        return evaluation_of(row)

    async def pause(self, evaluation_id: str) -> Evaluation:
        """Let no further sample of an evaluation begin, whichever worker owns it; a paused one is returned unchanged.

        Raises:
            NotFound: it does not exist.
            FailedPrecondition: it has ended (EVALUATION_ENDED).
        """
        return await self._control(evaluation_id, lambda now, number: set_paused(now, number, True))

    async def resume(self, evaluation_id: str, bounds: Mapping[str, float | int] = _NONE) -> Evaluation:
        """End the pause of an evaluation; one that is interrupted, or has failed for now, begins another attempt.

        One that runs, and is not paused, is returned unchanged.

        Args:
            evaluation_id: which one.
            bounds: what it may spend, by the names of its limits; as it is where absent.

        Raises:
            NotFound: it does not exist.
            FailedPrecondition: it has ended (EVALUATION_ENDED), or a part of it is with its caller (NEEDS_CALLER,
                HELD_BY_ORCHESTRATOR).
            BridgeError: it cannot be resumed here; see `start`.
        """
        row = await self._look_up(evaluation_id)
        interrupted = row.state is EvaluationState.INTERRUPTED
        request = recorded_request(row) if interrupted or claims.fails_for_now(row) else None
        if request is None or interrupted:
            unpaused = await self.end_pause(evaluation_id, bounds)
            if request is None:
                return unpaused
        now, _ = await self._admission.admit(request, recorded=True)
        return evaluation_of(now) if interrupted else await self.end_pause(evaluation_id, bounds)

    async def end_pause(self, evaluation_id: str, bounds: Mapping[str, float | int] = _NONE) -> Evaluation:
        """Let samples of a paused evaluation begin again, where it has an owner; see `resume`.

        Raises:
            NotFound: it does not exist.
            FailedPrecondition: it has ended (EVALUATION_ENDED), or its budget is spent (BUDGET_SPENT).
        """
        return await self._control(evaluation_id, lambda now, number: set_paused(now, number, False, bounds=bounds))

    async def set_concurrency(self, evaluation_id: str, concurrency: int) -> Evaluation:
        """Set how many samples of an evaluation may be at work at once, in this attempt and in later ones.

        Raises:
            InvalidField: it is above this worker's limit.
            NotFound: the evaluation does not exist.
            FailedPrecondition: it has ended (EVALUATION_ENDED).
        """
        self._admission.refuse_above_limit(concurrency, "concurrency")
        return await self._control(evaluation_id, lambda now, number: set_concurrency(now, number, concurrency))

    async def _control(self, evaluation_id: str, change: Callable[[Transaction, int], EvaluationRow]) -> Evaluation:
        number = (await self._look_up(evaluation_id)).number
        row = await self._journal.submit(lambda transaction: change(transaction, number))
        self._admission.control(number, Control.of(row))
        return evaluation_of(row)

    async def delete(self, evaluation_id: str) -> Evaluation:
        """Remove an evaluation that has ended, or that no worker owns, with samples and files; returns its last state.

        Raises:
            NotFound: it does not exist.
            FailedPrecondition: it is queued or running (NOT_ENDED).
        """
        number = (await self._look_up(evaluation_id)).number
        row = await self._journal.submit(lambda now: retention.delete(now, self._locks, number))
        _log.info("evaluation_deleted", evaluation_id=evaluation_id, samples=row.done)
        try:
            while await self._journal.submit(lambda now: retention.remove_chunk(now, retention.CHUNK)):
                pass
            await remove_forgotten(self._journal)
        except JournalUnavailable as error:
            # It is deleted. Its rows still need disk, until retention removes them.
            _log.warning("removal_not_finished", evaluation_id=evaluation_id, reason=error.reason)
        return evaluation_of(row)

    async def watch(
        self,
        evaluation_id: str,
        *,
        after_sequence: int = 0,
        log_id: str = "",
        without_samples: bool = False,
        new_kinds: bool = False,
        attach: Attach | None = None,
        pack: Callable[[EventPage], T],
    ) -> AsyncGenerator[T, None]:
        """The events of an evaluation until it ends, packed by a thread; stays open while it is interrupted."""
        number = (await self._look_up(evaluation_id)).number
        without = EventKind.SAMPLE_COMPLETE if without_samples else None
        only = EventFilter(
            number=number, without_kind=without, new_kinds=new_kinds, attach=attach, page_bytes=self._page_bytes
        )
        looked = time.monotonic()

        async def ended(look: Look) -> bool:
            nonlocal looked
            assert look.extent is not None
            if look.extent.state.terminal:
                return True
            self._refuse_if_closed(look.position)
            if time.monotonic() - looked >= OWNER_CHECK_SECONDS:
                looked = time.monotonic()
                if await self._reaper.is_orphan(number, look.extent.state):
                    await self._reaper.reap(await self._journal.read_stream(find_by_number, number))
            return False

        async for page in follow(
            self._journal, after_sequence=after_sequence, log_id=log_id, only=only, ended=ended, pack=pack
        ):
            yield page

    async def subscribe(
        self,
        *,
        after_sequence: int = 0,
        log_id: str = "",
        kinds: Sequence[EventKind] = (),
        run_id: str | None = None,
        until_now: bool = False,
        new_kinds: bool = False,
        attach: Attach | None = None,
        pack: Callable[[EventPage], T],
    ) -> AsyncGenerator[T, None]:
        """The events of the whole log, as it grows, packed by a thread."""
        target = self._journal.last_sequence() if until_now else None

        async def ended(look: Look) -> bool:
            if target is not None and look.position >= target:
                return True
            self._refuse_if_closed(look.position)
            return False

        only = EventFilter(
            kinds=tuple(kinds), run_id=run_id, new_kinds=new_kinds, attach=attach, page_bytes=self._page_bytes
        )
        async for page in follow(
            self._journal, after_sequence=after_sequence, log_id=log_id, only=only, ended=ended, pack=pack
        ):
            yield page

    def hold(self) -> None:
        """Let what a drain interrupts wait for a call: the user of this command has ended it."""
        self._admission.held = True

    async def drain(self) -> Sequence[str]:
        """Refuse new evaluations, interrupt those that run and commit that, then end streams; returns the ids."""
        interrupted = await self._admission.drain()
        # Streams end once they have carried what was written until now.
        self._closed_after = self._readable_sequence()
        self._journal.commits.publish()
        return interrupted

    async def flush_logs(self) -> None:
        """Write the Inspect logs that are missing in the folder of logs, if there is one."""
        if self._logs is not None:
            await self._logs.flush()

    async def aclose(self) -> None:
        """Drain, then close the journal."""
        await self.drain()
        await self.experiments.aclose()
        if self._logs is not None:
            await self._logs.aclose()
        if self._patient is not None:
            await self._patient.aclose()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._notes.flush()
        self._journal.submit(self._life.beat).add_done_callback(_log_failed_beat)
        await self._journal.aclose()
        self._locks.close()

    async def _look_up(self, evaluation_id: str) -> EvaluationRow:
        row = await self._journal.read(find, evaluation_id)
        if row is None:
            raise NotFound(
                f"is {evaluation_id!r}, and the worker's journal has no such evaluation: it has another id, is in "
                "another state directory, has not started yet, was deleted, or was removed after its retention",
                reason=Reason.UNKNOWN_EVALUATION,
                field="evaluation_id",
            )
        return await self._reaper.reap(row)

    async def _until_idle(self, row: EvaluationRow) -> EvaluationRow:
        """Wait until an evaluation has ended or is interrupted."""
        attempt = self._admission.attempt(row.number)
        if attempt is not None:
            await attempt.finished.wait()
        seen, looked = self._journal.commits.count, 0.0
        while True:
            # After every commit: the row, with its request and result, is read only if it may have changed.
            extent = await self._journal.read(extent_of, row.number)
            due = time.monotonic() - looked >= OWNER_CHECK_SECONDS
            if due or extent.state in _SETTLED:
                row = await self._journal.read(find_by_number, row.number)
                if due:
                    looked = time.monotonic()
                    row = await self._reaper.reap(row)
                if row.state in _SETTLED:
                    return row
            self._admission.refuse_if_unable(row.evaluation_id)
            seen = await self._journal.commits.wait(seen, OWNER_CHECK_SECONDS)
            await asyncio.sleep(NEWS_PAUSE_SECONDS)

    def _readable_sequence(self) -> int:
        try:
            return self._journal.last_sequence()
        except JournalUnavailable:
            # The disk fails: no stream can read further, so there is nothing to wait for.
            return 0

    def _refuse_if_closed(self, position: int) -> None:
        if self._closed_after is not None and position >= self._closed_after:
            raise draining_error()

    def _keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self.background.keep(name, run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _writable_changed(self, writable: bool) -> None:
        _log.warning("journal_writable" if writable else "journal_unwritable")
        if writable:
            self._keep("interruptions", self._reap)
        self.on_writable_change(writable)

    async def _reap(self) -> None:
        """Write what could not be written before; if it cannot now either, a later call or worker writes it."""
        try:
            await self._reaper.reap_all()
        except JournalUnavailable as error:
            _log.warning("interruptions_not_written", reason=error.reason)


def _log_failed_beat(beat: asyncio.Future[None]) -> None:
    if not beat.cancelled() and (error := beat.exception()) is not None:
        _log.warning("lived_time_not_counted", reason=str(error))


def _identified(request: EvaluateRequest) -> EvaluateRequest:
    if request.evaluation_id:
        return request
    return dataclasses.replace(request, evaluation_id=f"evaluation-{uuid.uuid4().hex}")
