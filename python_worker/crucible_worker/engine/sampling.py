"""Runs many samples of an evaluation, so many at once as is allowed, and has their results written in batches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Container, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.sample_runs import SampleRuns
from crucible_worker.engine.throttle import Throttle
from crucible_worker.journal import JournalUnavailable
from crucible_worker.journal.records import SampleKey

__all__ = ["MAX_UNWRITTEN", "Item", "Items", "ItemsAtHand", "Ledger", "Sampling", "retrieve_error"]

MAX_UNWRITTEN = 4096
"""Weight of the results that may wait for the journal's writer; above it no further sample is started."""

Item: TypeAlias = tuple[SampleKey, int]
"""The key of a sample's run, and the number of its attempt."""


class Items(Protocol):
    """What there is to run, in order."""

    def take(self) -> Item | None:
        """The next one; None if none is at hand."""
        ...

    async def more(self) -> bool:
        """Wait until another may be at hand; False if there will be none."""
        ...


class ItemsAtHand:
    """All that this worker has to run, known from the beginning."""

    def __init__(self, items: Iterator[Item]) -> None:
        """Of an iterator, which is used up."""
        self._items = items

    def take(self) -> Item | None:
        """See `Items.take`."""
        return next(self._items, None)

    async def more(self) -> bool:
        """There is no more."""
        return False


class Ledger(Protocol):
    """Where samples are reported; used on the loop."""

    @property
    def begun(self) -> Container[int]:
        """Evaluators whose EVALUATOR_START is committed, by index."""
        ...

    async def begin(self, place: SampleKey) -> None:
        """Commit the EVALUATOR_START of a sample's evaluator, unless it is committed.

        Raises:
            JournalUnavailable: it cannot be written.
        """
        ...

    def keeps(self, finished: FinishedSample) -> bool:
        """Whether a result is to be recorded; if not, another worker runs its sample."""
        ...

    def commit(self, kept: Sequence[FinishedSample], size: int) -> asyncio.Future[Any]:
        """Commit results, of that size together."""
        ...

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """Take note that these results are committed."""
        ...

    def fail(self, error: BaseException) -> None:
        """Take note that nothing can be written any more."""
        ...


class Sampling:
    """Of one evaluation at this worker; used in one event loop."""

    def __init__(self, samples: SampleRuns, throttle: Throttle, ledger: Ledger, *, most: int) -> None:
        """See the module.

        Args:
            samples: runs single samples.
            throttle: how many may be at work.
            ledger: where they are reported.
            most: samples at work at once, whatever is allowed.
        """
        self._samples, self._throttle, self._ledger, self._most = samples, throttle, ledger, most
        self._closed = False
        self._takers = 0
        self._to_write: list[FinishedSample] = []
        self._unwritten = 0
        self._written, self._left = asyncio.Event(), asyncio.Event()

    def close(self) -> None:
        """Let no further sample begin, and record no further result."""
        self._closed = True

    async def run(self, items: Items) -> None:
        """Run samples until there are no more, then wait: it is to be cancelled once all of them are written."""
        async with asyncio.TaskGroup() as group:
            while True:
                while self._takers < min(self._throttle.allowed, self._most):
                    self._takers += 1
                    group.create_task(self._failing(items))
                await self._throttle.changed()

    async def idle(self) -> None:
        """Wait until no sample is at work; none begins any more, as there are no more items."""
        while self._takers:
            self._left.clear()
            await self._left.wait()

    async def until_unwritten(self, fewer_than: int = 1) -> None:
        """Wait until less than this weight of results waits for the journal's writer."""
        while self._unwritten >= fewer_than:
            self._written.clear()
            await self._written.wait()

    async def _failing(self, items: Items) -> None:
        """Take samples; an error of the journal ends the work as such, not as a bug of the worker."""
        try:
            await self._take(items)
        except JournalUnavailable as error:
            self._ledger.fail(error)
        finally:
            self._takers -= 1
            self._left.set()

    async def _take(self, items: Items) -> None:
        """Run samples until none is left, or fewer tasks are allowed."""
        throttle, ledger = self._throttle, self._ledger
        # A model may answer a cancellation with another error: the remaining samples must not run.
        while self._takers <= throttle.allowed and not self._closed:
            if self._unwritten >= MAX_UNWRITTEN:
                await self.until_unwritten(MAX_UNWRITTEN)
                continue
            if (item := items.take()) is None:
                if await items.more():
                    continue
                break
            place, attempt = item
            if place.evaluator not in ledger.begun:
                await ledger.begin(place)
                await throttle.opened()
            kept = await self._samples.run(place, attempt)
            self._samples.progressed()
            self._record(kept)

    def _record(self, kept: FinishedSample) -> None:
        if self._closed or not self._ledger.keeps(kept):
            return
        self._unwritten += kept.weight
        if not self._to_write:
            # All samples that end in this iteration of the loop are submitted together, before anything later.
            asyncio.get_running_loop().call_soon(self._write)
        self._to_write.append(kept)

    def _write(self) -> None:
        kept, self._to_write = self._to_write, []
        size = sum([one.weight for one in kept])
        self._ledger.commit(kept, size).add_done_callback(functools.partial(self._written_now, kept, size))

    def _written_now(self, kept: Sequence[FinishedSample], size: int, future: asyncio.Future[Any]) -> None:
        self._unwritten -= size
        self._written.set()
        error = future.exception()
        if error is None:
            self._ledger.written(kept)
        else:
            self._ledger.fail(error)


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of what nobody may wait for any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
