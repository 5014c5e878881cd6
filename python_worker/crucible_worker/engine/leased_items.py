"""What one worker runs of an evaluation whose work is shared: items of parts that it leases, one part after another.

Parts are leased before they are needed, so that no sample waits for a lease. When all parts are taken, the worker waits
for parts that others give back, or lose by their death.
"""

from __future__ import annotations

import asyncio
import collections
import secrets
from collections.abc import Callable, Mapping, Sequence

import structlog

from crucible_worker.engine.evaluation_owners import EvaluationOwners
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sampling import Item
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal import parts as journal_parts
from crucible_worker.journal.records import SampleKey

__all__ = ["DEAD_CHECK_SECONDS", "PARTS_PAUSE_SECONDS", "LeasedItems"]

PARTS_PAUSE_SECONDS = 0.05
"""Shortest time between two looks at the parts of an evaluation."""
DEAD_CHECK_SECONDS = 1.0
"""Seconds between two looks for holders that have died."""

_log = structlog.get_logger(__name__)


class LeasedItems:
    """See `crucible_worker.engine.sampling.Items`; used in one event loop."""

    def __init__(
        self,
        journal: Journal,
        owners: EvaluationOwners,
        number: int,
        *,
        worker_id: str,
        enough: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        """See the module.

        Args:
            journal: where parts are.
            owners: this worker's.
            number: the evaluation's.
            worker_id: this worker's.
            enough: returns how many items are to be at hand, at least one.
            failed: called with the error if parts cannot be leased.
        """
        self.holder = f"{worker_id} {secrets.token_hex(4)}"
        """Who leases; unlike any other, also at this worker."""
        self._journal, self._owners, self._number = journal, owners, number
        self._enough, self._failed = enough, failed
        self._pending: collections.deque[Item] = collections.deque()
        self._part_of: dict[SampleKey, int] = {}
        self._left: dict[int, int] = {}
        self._closed = self._waiting = False
        self._changed = asyncio.Event()
        self._leasing: asyncio.Task[None] | None = None
        self._attending: asyncio.Future[int] | None = None
        self._attended: int | None = None

    def attend(self, attempt: int) -> None:
        """Keep the evaluation alive also while no part is leased here, until `give_back` or `release`."""
        self._attending = self._journal.submit(
            lambda transaction: journal_parts.attend(
                transaction, self._owners.parts, self._number, attempt, holder=self.holder
            )
        )
        self._attending.add_done_callback(self._attends)

    def take(self) -> Item | None:
        """The next item; None if none is at hand."""
        if self._closed or not self._pending:
            return None
        item = self._pending.popleft()
        if len(self._pending) < self._enough():
            self._lease_more()
        return item

    async def more(self) -> bool:
        """Wait until another may be at hand; False once this is closed."""
        while not self._pending and not self._closed:
            self._lease_more()
            self._changed.clear()
            await self._changed.wait()
        return not self._closed

    def close(self) -> None:
        """Hand out nothing any more."""
        self._closed = True
        self._changed.set()
        if self._leasing is not None and self._waiting:
            self._leasing.cancel()

    async def settled(self) -> None:
        """Once this is closed: wait until what is being leased is known."""
        begun = [work for work in (self._leasing, self._attending) if work is not None]
        if begun:
            await asyncio.wait(begun)

    def part_of(self, place: SampleKey) -> int:
        """The part of an item that was handed out, and has no committed result."""
        return self._part_of[place]

    def counted(self, kept: Sequence[FinishedSample]) -> Mapping[int, int]:
        """How many of these results are of each part."""
        return collections.Counter(self._part_of[one.place] for one in kept)

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """Take note that results are committed."""
        for one in kept:
            part = self._part_of.pop(one.place)
            self._left[part] -= 1
            if not self._left[part]:
                del self._left[part]

    def give_back(self, transaction: Transaction) -> None:
        """Let others have the parts that are leased, inside a transaction; no result is submitted after this."""
        journal_parts.give_back(transaction, self._owners.parts, self.holder, tuple(self._left))
        transaction.after_commit(self._left.clear)
        if self._attended is not None:
            journal_parts.leave(transaction, self._owners.parts, self._attended)

    def release(self) -> None:
        """Own nothing any more, where it could not be given back."""
        for part in self._left:
            self._owners.parts.release(part)
        if self._attended is not None:
            self._owners.parts.release(self._attended)

    def _attends(self, attending: asyncio.Future[int]) -> None:
        if (error := attending.exception()) is not None:
            self._failed(error)
        else:
            self._attended = attending.result()

    def _lease_more(self) -> None:
        if self._leasing is None and not self._closed:
            self._leasing = asyncio.create_task(self._lease(), name=f"parts-of-{self._number}")
            self._leasing.add_done_callback(self._leased)

    def _leased(self, task: asyncio.Task[None]) -> None:
        self._leasing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _lease(self) -> None:
        """Lease until there is enough; where all parts are taken, wait for some."""
        journal, number = self._journal, self._number
        seen = journal.news.count
        while not self._closed and (runs := self._enough() - len(self._pending)) > 0:
            leased = await journal.submit(
                lambda transaction: journal_parts.lease(
                    transaction, self._owners.parts, number, holder=self.holder, runs=runs
                )
            )
            for part in leased:
                self._left[part.part] = len(part.items)
                self._pending.extend(part.items)
                self._part_of.update((place, part.part) for place, _ in part.items)
            self._changed.set()
            if not leased and not self._closed:
                self._waiting = True
                seen = await self._until_some_are_free(seen)
                self._waiting = False

    async def _until_some_are_free(self, seen: int) -> int:
        """Wait for parts that others have given back, or for the death of a holder; returns the count of news."""
        journal, number = self._journal, self._number
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while not self._closed:
            await asyncio.sleep(PARTS_PAUSE_SECONDS)
            try:
                seen = await journal.news.wait(seen, DEAD_CHECK_SECONDS)
                if await journal.read(journal_parts.unclaimed, number):
                    return seen
                if loop.time() - looked >= DEAD_CHECK_SECONDS:
                    looked = loop.time()
                    for holder, part in (await journal.read(journal_parts.held_parts, number)).items():
                        if holder != self.holder and await self._owners.parts.looks_free(part):
                            return seen
            except JournalUnavailable as error:  # tried again; a result that cannot be written ends the work
                _log.debug("parts_not_read", reason=error.reason)
        return seen
