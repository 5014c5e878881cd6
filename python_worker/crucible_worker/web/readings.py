"""How the samples of evaluations are spread: read by pages in the background, counted as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from crucible_worker.reports.distributions import ResultDistributions

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["MAX_COUNTED", "SampleReadings"]

MAX_COUNTED = 2_000_000
"""Samples that are counted; beyond, evaluations that were not looked at for the longest time are forgotten."""
PAGE_SIZE = 500
"""Samples that are read at a time."""
FIRST_LOOK_SECONDS = 1.0
"""A reader waits so long for samples that are still being read; what is there by then is shown."""
_AGAIN = 5.0
"""An evaluation that moves is read again after so many times the time that reading it took."""
_AGAIN_LEAST_SECONDS = 1.0


class _Reading:
    """How far the samples of one evaluation have been read."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.read = 0
        self.complete = False
        self.stale = False
        self.took = 0.0
        self.ended_at = 0.0
        self.looked_at = 0.0
        self.problem: BaseException | None = None
        self.distributions = ResultDistributions()
        self.progress = asyncio.Event()


class SampleReadings:
    """The samples of the evaluations that readers look at."""

    def __init__(self, bridge: Bridge) -> None:
        """Read from a worker."""
        self._bridge = bridge
        self._readings: dict[str, _Reading] = {}
        self._searches = 0
        self._no_search = asyncio.Event()
        self._no_search.set()

    async def aclose(self) -> None:
        """End reading."""
        tasks = [reading.task for reading in self._readings.values() if reading.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def moved(self, evaluation_id: str | None) -> None:
        """An evaluation, or each one if None, has other samples: it is read again at the next look."""
        if evaluation_id is None:
            for reading in self._readings.values():
                reading.stale = True
        elif (reading := self._readings.get(evaluation_id)) is not None:
            reading.stale = True

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Begin no further page inside of the block: a person waits for a search."""
        self._searches += 1
        self._no_search.clear()
        try:
            yield
        finally:
            self._searches -= 1
            if self._searches == 0:
                self._no_search.set()

    async def distributions(self, evaluation_id: str) -> tuple[ResultDistributions, bool]:
        """How its samples are spread, and whether all of them were counted.

        Raises:
            BridgeError: the worker refuses, or cannot be reached.
        """
        reading = self._begun(evaluation_id)
        try:
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while not reading.complete:
                    await self._step(reading)
        except TimeoutError:
            while reading.read == 0 and not reading.complete:
                await self._step(reading)
        return reading.distributions, reading.complete

    def _begun(self, evaluation_id: str) -> _Reading:
        """The reading of an evaluation; begun now at the first look, or if it has moved since."""
        reading = self._readings.get(evaluation_id)
        now = time.monotonic()
        if reading is None:
            reading = self._readings[evaluation_id] = _Reading()
            reading.looked_at = now
            self._make_room()
        idle = reading.task is None or reading.task.done()
        rested = now - reading.ended_at >= max(_AGAIN_LEAST_SECONDS, _AGAIN * reading.took)
        if idle and (not reading.complete or (reading.stale and rested)):
            reading.stale, reading.problem = False, None
            reading.task = asyncio.create_task(self._read(evaluation_id, reading))
        reading.looked_at = now
        return reading

    async def _read(self, evaluation_id: str, reading: _Reading) -> None:
        """Read all that it has; what was counted before is shown until then."""
        began = time.monotonic()
        token, count = "", 0
        distributions = ResultDistributions()
        first = not reading.complete
        try:
            while True:
                await self._no_search.wait()
                page = await self._bridge.evaluation.get_samples(
                    evaluation_id, without_records=True, page_size=PAGE_SIZE, page_token=token
                )
                for sample in page.items:
                    distributions.add(sample)
                count += len(page.items)
                token = page.next_page_token
                if first or not token:
                    reading.read, reading.distributions = count, distributions
                    self._tell(reading)
                if not token:
                    break
            reading.complete = True
        except Exception as error:  # raised at the next look
            reading.problem = error
        finally:
            reading.ended_at = time.monotonic()
            reading.took = reading.ended_at - began
            self._tell(reading)

    def _tell(self, reading: _Reading) -> None:
        news, reading.progress = reading.progress, asyncio.Event()
        news.set()

    async def _step(self, reading: _Reading) -> None:
        """Wait until more has been read."""
        if reading.problem is not None:
            raise reading.problem
        await reading.progress.wait()
        if reading.problem is not None:
            raise reading.problem

    def _make_room(self) -> None:
        """Forget evaluations that were not looked at for the longest time, until the others fit."""
        by_age = sorted(self._readings.items(), key=lambda item: item[1].looked_at)
        held = sum(reading.read for reading in self._readings.values())
        for evaluation_id, reading in by_age[:-1]:
            if held <= MAX_COUNTED:
                return
            if reading.task is not None and not reading.task.done():
                continue
            held -= reading.read
            del self._readings[evaluation_id]
