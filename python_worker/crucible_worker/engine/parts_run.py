"""A worker's share of an evaluation: it leases parts, runs their samples, and commits the results with the lease.

The lead of the evaluation and its helpers use the same class. Whoever finishes a part and finds that the lead is gone
becomes the lead in the same transaction. So an evaluation that is worked on is never without a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem
from crucible_worker.engine import claims, recording, spans
from crucible_worker.engine.controls import Control
from crucible_worker.engine.evaluation_owners import EvaluationOwners
from crucible_worker.engine.leased_items import LeasedItems
from crucible_worker.engine.preparation import Plan
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sample_runs import SampleRuns
from crucible_worker.engine.sampling import Sampling, retrieve_error
from crucible_worker.engine.throttle import Throttle
from crucible_worker.engine.usage import Spent
from crucible_worker.evaluators.base import stops_itself
from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal import parts as journal_parts
from crucible_worker.journal.queries import Row
from crucible_worker.journal.records import SampleKey

__all__ = ["PartsRun", "is_shareable"]

_OF_ONE_WORKER = frozenset(
    {
        Reason.BACKEND_CLOSED,
        Reason.BACKEND_CONNECTION_LOST,
        Reason.BACKEND_FORBIDDEN,
        Reason.BACKEND_KEY,
        Reason.BACKEND_QUOTA,
        Reason.BACKEND_UNAUTHENTICATED,
        Reason.BACKEND_UNREACHABLE,
    }
)
"""Why a sample may fail at one worker and not at another: the way to its model, and its key."""


def is_shareable(plan: Plan, runs: int) -> bool:
    """Whether several workers may run an attempt with so many runs of samples.

    Not if it has few, if its caller has a part of it, or if a sample is a whole task with files of its own. Nor if the
    weights of a model are confirmed at its end: other workers may have that model at other servers.
    """
    confirmed = any(model.confirms_weights for model in plan.models)
    whole_tasks = any(stops_itself(evaluator) for _, evaluator in plan.evaluators)
    return runs >= journal_parts.MIN_SHARED and plan.caller is None and not (whole_tasks or confirmed)


class PartsRun:
    """See the module; used in one event loop."""

    def __init__(
        self,
        journal: Journal,
        owners: EvaluationOwners,
        row: Row,
        samples: SampleRuns,
        throttle: Throttle,
        *,
        worker_id: str,
        begun: Iterable[int],
        failed: Callable[[BaseException], None],
        promoted: Callable[[Row], None] = lambda row: None,
        leaves: Callable[[Problem], bool] = lambda problem: False,
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded; each transaction checks the leases of the parts that it is about.
            owners: this worker's.
            row: the evaluation, whose parts are written.
            samples: runs single samples.
            throttle: how many may be at work at this worker.
            worker_id: this worker's.
            begun: evaluators whose EVALUATOR_START is committed.
            failed: called with the error when nothing more can be written, or by a bug of the worker.
            promoted: called with the evaluation's row when this worker has become its lead.
            leaves: called with the problem of a sample that another worker may not have; returns whether this worker
                leaves the sample, and all others, to the others.
        """
        self.samples = samples
        """Runs single samples."""
        self.spent = Spent()
        """Usage of the samples that this worker has run and committed."""
        self.begun = set(begun)
        """See `crucible_worker.engine.sampling.Ledger`."""
        self._journal, self._owners, self._row = journal, owners, row
        self._throttle, self._failed, self._promoted = throttle, failed, promoted
        self._leaves = leaves
        self._beginning: dict[int, asyncio.Future[None]] = {}
        self._items = LeasedItems(
            journal, owners, row.number, worker_id=worker_id, enough=self._enough, failed=self.fail
        )
        self._sampling = Sampling(samples, throttle, self, most=row.total)
        if samples.recorder is not None:
            samples.recorder.shared = True

    def attend(self) -> None:
        """Keep the evaluation alive as long as this lasts: its lead may die while this worker has no part."""
        self._items.attend(self._row.attempt)

    def start(self) -> None:
        """Begin; `leave`, or `close` and `end`, are to follow."""
        self.task = asyncio.create_task(self._sampling.run(self._items), name=f"share-of-{self._row.number}")
        self.task.add_done_callback(self._ended)

    def heed(self, control: Control) -> None:
        """Apply what callers have set meanwhile."""
        if self._throttle.heed(control):
            self.samples.progressed()  # a pause is no stall

    def close(self) -> None:
        """Let no further sample begin, and record no further result."""
        self._sampling.close()
        self._items.close()
        self.task.cancel()

    async def leave(self) -> None:
        """Let the samples at work end, and begin no other one."""
        self._items.close()
        await self._sampling.idle()
        self.close()

    async def until_written(self) -> None:
        """Once this is closed: wait for the results that are being written."""
        await self._items.settled()
        await self._sampling.until_unwritten()

    def give_back(self, transaction: Transaction) -> None:
        """Let others have what is not done, inside a transaction; after `until_written`."""
        self._items.give_back(transaction)

    def release(self) -> None:
        """Own no part any more, where they could not be given back."""
        self._items.release()

    async def begin(self, place: SampleKey) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        index = place.evaluator
        if index not in self._beginning:
            part, plan = self._items.part_of(place), self.samples.plan
            spec, evaluator = plan.evaluators[index]
            total = len(plan.samples) * evaluator.repeats

            def begin(transaction: Transaction) -> None:
                journal_parts.check(transaction, self._owners.parts, self._items.holder, part)
                spans.begin(transaction, self._row, index, label=spec.label, total=total, active_ns=None)

            self._beginning[index] = self._journal.submit(begin)
            self._beginning[index].add_done_callback(retrieve_error)
        # Several samples wait for it: the cancellation of one must not affect the others.
        await asyncio.shield(self._beginning[index])
        self.begun.add(index)

    def keeps(self, finished: FinishedSample) -> bool:
        """See `crucible_worker.engine.sampling.Ledger`."""
        problem = finished.sample.problem
        return problem is None or problem.reason not in _OF_ONE_WORKER or not self._leaves(problem)

    def commit(self, kept: Sequence[FinishedSample], size: int) -> asyncio.Future[Row | None]:
        """See `crucible_worker.engine.sampling.Ledger`."""
        done = self._items.counted(kept)

        def commit(transaction: Transaction) -> Row | None:
            finished = journal_parts.spend(transaction, self._owners.parts, self._items.holder, done)
            recording.commit_samples(transaction, self._row, kept, None, self.samples.recorder)
            return claims.promote(transaction, self._owners, self._row) if finished else None

        committed = self._journal.submit(commit, size)
        committed.add_done_callback(self._committed)
        return committed

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        self._items.written(kept)
        for one in kept:
            self.spent.add(one.place, one.took)

    def fail(self, error: BaseException) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        self._failed(error)

    def _enough(self) -> int:
        return max(1, self._throttle.allowed)

    def _committed(self, committed: asyncio.Future[Row | None]) -> None:
        if committed.exception() is None and (row := committed.result()) is not None:
            self._promoted(row)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
