"""One logger of an experiment, fed from the journal: what it acknowledged is written there, and what it failed with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_worker.journal.experiments import Page, acknowledge, read_page, report
from crucible_worker.journal.owned import OwnersJournal
from crucible_worker.loggers.base import Entry, Missed
from crucible_worker.loggers.runner import LoggerRunner

__all__ = ["FAILURES", "IDLE_SECONDS", "LOOK_SECONDS", "PAUSE_SECONDS", "STATUS_SECONDS", "Feed"]

LOOK_SECONDS = 5.0
"""Seconds between two looks at the journal without news of a commit."""
PAUSE_SECONDS = 0.05
"""Shortest time between two looks, however often workers commit."""
IDLE_SECONDS = 300.0
"""Seconds without entries after which a logger is closed; at once if others wait for its place."""
STATUS_SECONDS = 1.0
"""Seconds between two looks at a logger that has not acknowledged a page."""
FAILURES = 3
"""Failures in a row after which a logger gives its place to others that wait."""


class Feed:
    """Feeds one logger; of one event loop."""

    def __init__(self, journal: OwnersJournal, number: int, runner: LoggerRunner, crowded: Callable[[], bool]) -> None:
        """Feed the logger with the row `number`; `crowded` says whether others wait for its place."""
        self._journal, self._number, self._runner, self._crowded = journal, number, runner, crowded
        self._problem = ""
        self._refused = 0

    async def run(self) -> bool:
        """Feed it until it has nothing to do for a while; False if it fails and others need its place."""
        idle_since = time.monotonic()
        seen = self._journal.news.count
        while (page := await self._journal.read(read_page, self._number)) is not None:
            self._problem = page.logger.problem
            entries = _to_tell(page)
            if entries:
                await self._journal.confirm()
                if not await self._done(page, self._runner.feed(entries)):
                    return False
                await self._acknowledge(page)
            elif page.through > page.logger.position:
                await self._acknowledge(page)  # all of it is for other loggers
            elif page.sync_wanted:
                await self._journal.confirm()
                if not await self._done(page, self._runner.sync()):
                    return False
                if page.closed:
                    await self._runner.aclose()
                await self._acknowledge(page, synced=True)
                if page.closed:
                    return True
            elif page.closed or self._crowded() or time.monotonic() - idle_since > IDLE_SECONDS:
                await self._runner.aclose()
                return True
            else:
                await asyncio.sleep(PAUSE_SECONDS)
                seen = await self._journal.news.wait(seen, LOOK_SECONDS)
                continue
            idle_since = time.monotonic()
        return True

    async def _done(self, page: Page, work: Coroutine[Any, Any, object]) -> bool:
        """Wait until the logger has done something, and write down what it fails with meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=STATUS_SECONDS))[0]:
                status = self._runner.status
                problem = shorten(status.error, MAX_PROBLEM_BYTES) if status.failures else ""
                if problem != self._problem:
                    self._problem = problem
                    await self._journal.submit(lambda now, said=problem: report(now, page.logger, said))
                if status.failures >= FAILURES and self._crowded():
                    return False
            task.result()
            return True
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def _acknowledge(self, page: Page, *, synced: bool = False) -> None:
        status = self._runner.status
        refused, self._refused = status.refused - self._refused, status.refused
        await self._journal.submit(
            lambda now: acknowledge(
                now, page.logger, page.through, refused=refused, url=status.url or page.logger.url, synced=synced
            )
        )


def _to_tell(page: Page) -> list[Entry]:
    """What the logger is to get: first that it missed entries, if it has not been told."""
    logger = page.logger
    untold = logger.missed - logger.missed_told
    if not untold:
        return list(page.entries)
    return [Missed(sequence=logger.position, unix_time_ns=time.time_ns(), count=untold), *page.entries]
