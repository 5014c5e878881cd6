"""Which sample runs next, and how many at once. Their results are written in batches, each one transaction."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from crucible_worker.engine import recording
from crucible_worker.engine.budgets import CostBudget, writing
from crucible_worker.engine.controls import Control
from crucible_worker.engine.evaluator_progress import EvaluatorProgress
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sample_runner import SampleRunner
from crucible_worker.engine.usage import Spent
from crucible_worker.journal import JournalUnavailable
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import SampleKey

__all__ = ["MAX_UNWRITTEN", "Item", "SampleScheduler", "Throttle"]

# How many samples of an attempt may be at work: as many as its request or a caller says; none while it is paused.


class Throttle:
    """Of one attempt, in one event loop; it also counts the time in which the attempt was not paused."""

    def __init__(self, control: Control, *, asked: int, most: int, since: float) -> None:
        """See the module.

        Args:
            control: what callers have set before.
            asked: samples at work at once, where no caller sets another number.
            most: the worker's bound of that number.
            since: when the attempt began, by `time.monotonic`.
        """
        self._asked, self._most, self._since = asked, most, since
        self._paused_seconds, self._paused_at = 0.0, since
        self._changed = asyncio.Event()
        self._change = control.change
        self.paused = control.paused
        """Whether no sample may begin."""
        self.allowed = self._limit(control)
        """Tasks that may take samples now."""

    def apply(self, control: Control) -> bool:
        """Apply what callers have set; returns whether that begins or ends a pause. Older settings change nothing."""
        if control.change <= self._change:
            return False
        self._change, self.allowed = control.change, self._limit(control)
        turned = control.paused != self.paused
        if turned:
            now = time.monotonic()
            if control.paused:
                self._paused_at = now
            else:
                self._paused_seconds += now - self._paused_at
            self.paused = control.paused
        self._changed.set()
        self._changed = asyncio.Event()
        return turned

    @property
    def active_seconds(self) -> float:
        """Time since the beginning of the attempt, without pauses."""
        until = self._paused_at if self.paused else time.monotonic()
        return until - self._since - self._paused_seconds

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    async def opened(self) -> None:
        """Wait while it is paused."""
        while self.paused:
            await self._changed.wait()

    def _limit(self, control: Control) -> int:
        return 0 if control.paused else min(control.concurrency or self._asked, self._most)


MAX_UNWRITTEN = 4096
"""Weight of the results that may wait for the journal's writer; above it no further sample is started."""

Item: TypeAlias = tuple[SampleKey, int]
"""The key of a sample's run, and the number of its attempt."""


class SampleScheduler:
    """Runs the samples of one attempt; used in one event loop."""

    def __init__(
        self,
        journal: FencedJournal,
        row: EvaluationRow,
        samples: SampleRunner,
        throttle: Throttle,
        items: Iterator[Item],
        *,
        runs: EvaluatorProgress,
        spent: Spent,
        active_ns: Callable[[], int],
        failed: Callable[[BaseException], None],
        budget: CostBudget | None = None,
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded.
            row: the evaluation.
            samples: runs single samples.
            throttle: how many may be at work.
            items: what is to run, in order; it is used up.
            runs: the evaluators of the attempt.
            spent: gets the usage of committed samples.
            active_ns: returns the time with this owner so far.
            failed: called with the error when nothing more can be written, or by a bug of the worker.
            budget: recorded with each batch of results.
        """
        self.samples = samples
        """Runs single samples."""
        self.spent = spent
        """Usage of the samples so far."""
        self.done = 0
        """Committed results of this attempt."""
        self._journal, self._row, self._runs, self._active_ns, self._failed = journal, row, runs, active_ns, failed
        self._throttle, self._items, self._budget = throttle, items, budget
        self._closed = False
        self.at_work = 0
        """Tasks that run samples."""
        self._to_write: list[FinishedSample] = []
        self._unwritten = 0
        self._written = asyncio.Event()

    def start(self) -> None:
        """Begin; `close` is to follow, once all results are written or no more are wanted."""
        self.task = asyncio.create_task(self._run(), name=f"samples-of-{self._row.number}")
        self.task.add_done_callback(self._ended)

    def close(self) -> None:
        """Let no further sample begin, and record no further result."""
        self._closed = True
        self.task.cancel()

    async def until_written(self, fewer_than: int = 1) -> None:
        """Wait until less than this weight of results waits for the journal's writer."""
        while self._unwritten >= fewer_than:
            self._written.clear()
            await self._written.wait()

    async def _run(self) -> None:
        """Run samples until there are no more, then wait to be cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                while self.at_work < min(self._throttle.allowed, self._row.total):
                    self.at_work += 1
                    group.create_task(self._failing())
                await self._throttle.changed()

    async def _failing(self) -> None:
        """Run samples; an error of the journal ends the work as such, not as a bug of the worker."""
        try:
            await self._run_some()
        except JournalUnavailable as error:
            self._failed(error)
        finally:
            self.at_work -= 1

    async def _run_some(self) -> None:
        """Run samples one after the other until none is left, or fewer are allowed at once."""
        throttle, runs = self._throttle, self._runs
        # A model may answer a cancellation with another error: the remaining samples must not run.
        while self.at_work <= throttle.allowed and not self._closed:
            if self._unwritten >= MAX_UNWRITTEN:
                await self.until_written(MAX_UNWRITTEN)
                continue
            if (item := next(self._items, None)) is None:
                break
            place, attempt = item
            if place.evaluator not in runs.begun:
                await runs.begin(place.evaluator)
                await throttle.opened()
            kept = await self.samples.run(place, attempt)
            self.samples.progressed()
            self._record(kept)

    def _record(self, kept: FinishedSample) -> None:
        if self._closed:
            return
        self._unwritten += kept.weight
        if not self._to_write:
            # All samples that end in this iteration of the loop are submitted together, before anything later.
            asyncio.get_running_loop().call_soon(self._write)
        self._to_write.append(kept)

    def _write(self) -> None:
        kept, self._to_write = self._to_write, []
        size = sum([one.weight for one in kept])
        active_ns, row, recorder = self._active_ns(), self._row, self.samples.recorder
        write = writing(
            self._budget, lambda transaction: recording.commit_samples(transaction, row, kept, active_ns, recorder)
        )
        self._journal.submit(write, size=size).add_done_callback(functools.partial(self._written_now, kept, size))

    def _written_now(self, kept: Sequence[FinishedSample], size: int, future: asyncio.Future[Any]) -> None:
        self._unwritten -= size
        self._written.set()
        if (error := future.exception()) is not None:
            self._failed(error)
            return
        self.done += len(kept)
        self.spent.add([(one.place, one.took) for one in kept])
        self._runs.written(kept)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
