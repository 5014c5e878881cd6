"""Feeds loggers from the journal: one task for each logger that has not got, or not synced, everything.

A logger is fed by one worker at a time, the one that has the lock of its row; a worker that dies leaves it to the
others. What a logger acknowledged is written to the journal, so the next worker continues after it. The entries wait in
the journal and not here: a logger that fails or blocks costs one page of memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Container, Coroutine
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_worker.journal import Journal, JournalUnavailable
from crucible_worker.journal.experiments import (
    LoggerRow,
    Page,
    acknowledge,
    config_of,
    find_experiment,
    find_waiting,
    read_page,
    report,
)
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.loggers.base import Entry, Experiment, LoggerSpec, Missed
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import LoggerRunner

__all__ = ["CLOSE_SECONDS", "FOLDER", "LEAVE_SECONDS", "Feeder", "StartRunner"]

# One logger of an experiment, fed from the journal: what it acknowledged is written there, and what it failed with.

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

    def __init__(self, journal: FencedJournal, number: int, runner: LoggerRunner, crowded: Callable[[], bool]) -> None:
        """Feed the logger with the row `number`; `crowded` says whether others wait for its place."""
        self._journal, self._number, self._runner, self._crowded = journal, number, runner, crowded
        self._problem = ""
        self._refused = 0

    async def run(self) -> bool:
        """Feed it until it has nothing to do for a while; False if it fails and others need its place."""
        idle_since = time.monotonic()
        seen = self._journal.commits.count
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
                seen = await self._journal.commits.wait(seen, LOOK_SECONDS)
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


LEAVE_SECONDS = 60.0
"""How long a logger is left alone that failed while others needed its place, or that cannot be made here."""
CLOSE_SECONDS = 0.5
"""How long loggers have to close when the worker ends; then their processes are killed. None loses an entry by it."""
FOLDER = "experiments"
"""Folder for files of loggers in the state directory."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 80
_DIGEST_CHARACTERS = 12
_log = structlog.get_logger(__name__)

StartRunner = Callable[[LoggerSpec, Experiment], LoggerRunner]
"""Makes what writes to a logger; tests have faster ones."""


class Feeder:
    """Feeds loggers of all experiments of a journal; used in its event loop."""

    def __init__(
        self, journal: Journal, *, most: int, only: Container[str] | None, start: StartRunner = LoggerRunner
    ) -> None:
        """Begin.

        Args:
            journal: where entries are.
            most: loggers that are open at once.
            only: ids of the experiments whose loggers are fed, now and later; all if None.
            start: makes what writes to a logger.
        """
        self._journal, self._most, self._only, self._start = journal, most, only, start
        self._locks = journal.owners("experiment_loggers")
        self._feeds: dict[int, asyncio.Task[None]] = {}
        self._left_until: dict[int, float] = {}
        self._crowded = False
        self._close_seconds = CLOSE_SECONDS
        self._looking = asyncio.create_task(self._look(), name="experiment-loggers")

    async def aclose(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop; loggers get the rest from the next worker of this journal.

        Args:
            seconds: how long each logger has to close, before its process is killed.
        """
        self._close_seconds = seconds
        tasks = [self._looking, *self._feeds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._locks.close()

    async def _look(self) -> None:
        seen, outages = self._journal.commits.count, LogOnce(_log, "loggers_not_looked_for")
        while True:
            try:
                waiting = await self._journal.read(find_waiting)
            except JournalUnavailable as error:
                outages.failed(error)
            else:
                outages.worked()
                await self._begin([each for each in waiting if self._only is None or each[1] in self._only])
            await asyncio.sleep(PAUSE_SECONDS)
            seen = await self._journal.commits.wait(seen, LOOK_SECONDS)

    async def _begin(self, waiting: list[tuple[LoggerRow, str]]) -> None:
        now = time.monotonic()
        self._left_until = {number: until for number, until in self._left_until.items() if until > now}
        due = [each for each in waiting if each[0].number not in self._feeds and each[0].number not in self._left_until]
        self._crowded = len(self._feeds) + len(due) > self._most
        for row, experiment_id in due[: max(0, self._most - len(self._feeds))]:
            if await self._locks.take(row.number):
                task = asyncio.create_task(self._fed(row, experiment_id), name=f"logger-{row.number}")
                self._feeds[row.number] = task
                task.add_done_callback(lambda _, number=row.number: self._ended(number))

    def _ended(self, number: int) -> None:
        del self._feeds[number]
        self._locks.release(number)

    async def _fed(self, row: LoggerRow, experiment_id: str) -> None:
        """Feed a logger until it has nothing to do for a while, or others need its place."""
        try:
            journal = FencedJournal(self._journal, self._locks, row.number)
            runner = await self._runner(journal, row, experiment_id)
            if runner is None:
                return
            try:
                if not await Feed(journal, row.number, runner, lambda: self._crowded).run():
                    self._leave(row.number)
            finally:
                await runner.aclose(self._close_seconds)
        except JournalUnavailable as error:
            _log.warning("logger_not_fed", logger=row.logger, reason=error.reason)
            self._leave(row.number)
        except Exception:  # a bug: the other loggers are fed all the same
            _log.exception("logger_feed_failed", logger=row.logger)
            self._leave(row.number)

    def _leave(self, number: int) -> None:
        self._left_until[number] = time.monotonic() + LEAVE_SECONDS

    async def _runner(self, journal: FencedJournal, row: LoggerRow, experiment_id: str) -> LoggerRunner | None:
        """What writes to a logger; None if it cannot be made at this worker, which is recorded."""
        experiment = await self._journal.read(find_experiment, experiment_id)
        if experiment is None:
            return None
        try:
            spec = await asyncio.to_thread(read, row.logger, "log_to", by_operator=row.by_operator)
        except BridgeError as error:
            problem = shorten(str(error), MAX_PROBLEM_BYTES)
            await journal.submit(lambda now: report(now, row, problem))
            self._leave(row.number)
            return None
        config = await self._journal.read(config_of, row.experiment)
        identity = _identity(experiment_id, experiment.created_ns)
        return self._start(
            spec,
            Experiment(
                name=experiment_id,
                run_id=identity,
                directory=self._journal.folder / FOLDER / identity,
                config=config,
                resumed=row.position > 0,
            ),
        )


def _identity(experiment_id: str, created_ns: int) -> str:
    """A name for folders and trackers: the same at every worker, and no other experiment of any journal has it."""
    digest = hashlib.sha256(f"{experiment_id}\0{created_ns}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    shown = _UNSAFE.sub("-", experiment_id)[:_NAME_CHARACTERS].strip("-.") or "x"
    return f"{shown}-{digest}"
