"""The samples of an evaluation that one worker runs alone: results are committed by its lead, with the lead's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence, Set

from crucible_worker.engine import recording
from crucible_worker.engine.evaluator_runs import EvaluatorRuns
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sample_runs import SampleRuns
from crucible_worker.engine.sampling import Item, ItemsAtHand, Sampling
from crucible_worker.engine.throttle import Throttle
from crucible_worker.engine.usage import Spent
from crucible_worker.journal.owned import OwnersJournal
from crucible_worker.journal.queries import Row
from crucible_worker.journal.records import SampleKey

__all__ = ["AloneRun"]


class AloneRun:
    """See the module; used in one event loop."""

    def __init__(
        self,
        journal: OwnersJournal,
        row: Row,
        samples: SampleRuns,
        throttle: Throttle,
        items: Iterator[Item],
        *,
        runs: EvaluatorRuns,
        spent: Spent,
        active_ns: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded.
            row: the evaluation.
            samples: runs single samples.
            throttle: how many may be at work.
            items: what is to run.
            runs: the evaluators of the attempt.
            spent: gets the usage of committed samples.
            active_ns: returns the time with this owner so far.
            failed: called with the error when nothing more can be written, or by a bug of the worker.
        """
        self.samples = samples
        """Runs single samples."""
        self.spent = spent
        """Usage of the samples so far."""
        self.done = 0
        """Committed results of this attempt."""
        self._journal, self._row, self._runs, self._active_ns, self._failed = journal, row, runs, active_ns, failed
        self._items = ItemsAtHand(items)
        self._sampling = Sampling(samples, throttle, self, most=row.total)

    def start(self) -> None:
        """Begin; `close` is to follow."""
        self.task = asyncio.create_task(self._sampling.run(self._items), name=f"samples-of-{self._row.number}")
        self.task.add_done_callback(self._ended)

    def close(self) -> None:
        """Let no further sample begin, and record no further result."""
        self._sampling.close()
        self.task.cancel()

    async def until_written(self) -> None:
        """Once this is closed: wait for the results that are being written."""
        await self._sampling.until_unwritten()

    @property
    def begun(self) -> Set[int]:
        """See `crucible_worker.engine.sampling.Ledger`."""
        return self._runs.begun

    async def begin(self, place: SampleKey) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        await self._runs.begin(place.evaluator)

    def keeps(self, finished: FinishedSample) -> bool:
        """See `crucible_worker.engine.sampling.Ledger`."""
        return True

    def commit(self, kept: Sequence[FinishedSample], size: int) -> asyncio.Future[None]:
        """See `crucible_worker.engine.sampling.Ledger`."""
        active_ns, row, recorder = self._active_ns(), self._row, self.samples.recorder
        return self._journal.submit(
            lambda transaction: recording.commit_samples(transaction, row, kept, active_ns, recorder), size=size
        )

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        self.done += len(kept)
        for one in kept:
            self.spent.add(one.place, one.took)
        self._runs.written(kept)

    def fail(self, error: BaseException) -> None:
        """See `crucible_worker.engine.sampling.Ledger`."""
        self._failed(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
