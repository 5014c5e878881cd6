"""The evaluators of one attempt: each begins with its first sample, and ends once its last one is committed."""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set

from crucible_bridge.types import EvaluateRequest, EvaluatorResult, Metrics
from crucible_worker.engine import spans
from crucible_worker.engine.items import finals_in
from crucible_worker.engine.preparation import Plan
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sampling import retrieve_error
from crucible_worker.engine.summary import merged, summarise, unless_taken
from crucible_worker.engine.usage import Spent
from crucible_worker.journal.owned import OwnersJournal
from crucible_worker.journal.queries import Row
from crucible_worker.journal.records import evaluator_result_from_record

__all__ = ["EvaluatorRuns"]


class EvaluatorRuns:
    """Which evaluators have begun, which have ended and with what; of one event loop."""

    def __init__(
        self,
        journal: OwnersJournal,
        row: Row,
        plan: Plan,
        request: EvaluateRequest,
        *,
        told: Mapping[int, bytes | None],
        before: Mapping[int, array[int]],
        active_ns: Callable[[], int],
        spent: Spent,
        settle: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded.
            row: the evaluation as it was claimed.
            plan: of the attempt.
            request: what to run, with the limits of this attempt.
            told: the starts and ends of evaluators that earlier attempts recorded; see `spans.told_of`.
            before: what earlier attempts ran; see `queries.runs_before`.
            active_ns: returns the time with this owner so far.
            spent: usage of the committed samples.
            settle: called with the index of an evaluator before it ends: it completes `spent`, where other workers run
                samples as well.
        """
        self._journal, self._row, self._plan, self._request = journal, row, plan, request
        self._active_ns, self._spent, self._settle = active_ns, spent, settle
        self.begun = set(told)
        """Evaluators whose EVALUATOR_START is committed, by index."""
        self._beginning: dict[int, asyncio.Future[None]] = {}
        self._results = {
            index: dataclasses.replace(
                evaluator_result_from_record(plan.evaluators[index][0], record), usage=spent.of(index)
            )
            for index, record in told.items()
            if record is not None
        }
        self._left: dict[int, int] = {}
        self._all_written: dict[int, asyncio.Event] = {}
        for index in range(len(plan.evaluators)):
            if index not in self._results:
                able = index not in plan.refused
                self._left[index] = self._total(index) - finals_in(before.get(index, ())) if able else 0
                self._all_written[index] = asyncio.Event()
                if not self._left[index]:
                    self._all_written[index].set()
        self._summarising = asyncio.Lock()

    @property
    def unfinished(self) -> Sequence[int]:
        """Evaluators that have not ended, by index."""
        return [index for index in self._left if index not in self._results]

    @property
    def left(self) -> int:
        """Runs of samples that are left."""
        return sum(self._left.values())

    @property
    def to_run(self) -> Set[int]:
        """The unfinished evaluators that have samples to run."""
        return {index for index, left in self._left.items() if left}

    async def begin(self, index: int) -> None:
        """Commit EVALUATOR_START before the first sample is run, unless it is committed.

        Raises:
            JournalUnavailable: it cannot be written.
        """
        if index in self.begun:
            return
        if index not in self._beginning:
            row, label, total = self._row, self._plan.evaluators[index][0].label, self._total(index)
            active_ns = self._active_ns()
            self._beginning[index] = self._journal.submit(
                lambda transaction: spans.begin(transaction, row, index, label=label, total=total, active_ns=active_ns)
            )
            self._beginning[index].add_done_callback(retrieve_error)
        # Several samples wait for it: the cancellation of one must not affect the others.
        await asyncio.shield(self._beginning[index])
        self.begun.add(index)

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """Take note that these results are committed."""
        for one in kept:
            index = one.place.evaluator
            self._left[index] -= 1
            if not self._left[index]:
                self._all_written[index].set()

    def left_now(self, remaining: Mapping[int, int]) -> None:
        """Take note of the runs of samples that are left, by evaluator, where other workers run samples as well."""
        for index, all_written in self._all_written.items():
            if not remaining.get(index):
                all_written.set()

    async def end(self, index: int) -> None:
        """Wait for the last sample of an evaluator, aggregate its samples, and record its end.

        Raises:
            JournalUnavailable: the journal cannot be read, or not written.
        """
        await self._all_written[index].wait()
        await self.begin(index)  # it had nothing to run
        if self._settle is not None:
            await self._settle(index)
        # One at a time: several that end together must not occupy all of the journal's readers.
        async with self._summarising:
            result = await self._journal.read(
                summarise,
                self._row.number,
                index,
                *self._plan.evaluators[index],
                refused=self._plan.refused.get(index),
                samples=len(self._plan.samples),
                prefix=self._request.metric_prefix,
                limits=self._request.limits,
                usage=self._spent.of(index),
                unreadable=self._journal.errors,
            )
            result = unless_taken(result, self._results.values())
            row, active_ns = self._row, self._active_ns()
            await self._journal.submit(lambda transaction: spans.end(transaction, row, index, result, active_ns))
            self._results[index] = result

    def outcome(self) -> tuple[Metrics, list[EvaluatorResult]]:
        """The metrics of those that finished, and every evaluator's result, once all have ended."""
        results = [self._results[index] for index in range(len(self._plan.evaluators))]
        return merged(results), results

    def _total(self, index: int) -> int:
        return len(self._plan.samples) * self._plan.evaluators[index][1].repeats
