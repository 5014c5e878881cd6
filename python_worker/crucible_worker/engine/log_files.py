"""A folder that gets an Inspect log of each evaluation that ends at this worker, or at another one with this folder.

The transaction that ends an evaluation adds a row to `log_files`; the file is written after it, by a thread, and its
name is then put into the row. So a worker that is killed in between leaves a row without a name, and the file is
written by the next worker with this folder: at its start, or within `LOOK_SECONDS`. A lock of the evaluation makes two
workers take turns. One that has lost it, because it was stopped for too long, gives no file its name and writes no row.
The name of a file belongs to one evaluation of one journal: none replaces another.

A folder that cannot be written to is a warning, and the reason is in the row. The evaluation stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import threading
import time
from pathlib import Path

import structlog

from crucible_bridge.errors import NotFound
from crucible_worker.exports.eval_file import EvalFileWriter
from crucible_worker.exports.files import PART_SUFFIX, part_prefix, whole_file
from crucible_worker.exports.record_data import log_name
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.queries import SAMPLE_PAGE_BYTES, Reads, evaluation_of, find_by_number, read_samples
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.util.shown_paths import ShownPaths

__all__ = ["LOOK_SECONDS", "LogFiles"]

LOOK_SECONDS = 30.0
"""Seconds between two looks for files that are missing: those of workers that died, and those that failed."""
PAGE_SAMPLES = 200
"""Results that are converted at once."""

_log = structlog.get_logger(__name__)


class _Stopped(Exception):
    """The worker ends, or another one has written the file, or the evaluation is removed."""


class LogFiles:
    """Writes the logs of a folder; used in the event loop of its journal."""

    def __init__(self, journal: Journal, folder: Path, paths: ShownPaths) -> None:
        """Expect a log of each evaluation that ends from now on.

        Args:
            journal: has the evaluations.
            folder: gets the logs.
            paths: shortens the paths in them.
        """
        self._journal, self._paths = journal, paths
        self._folder = Path(os.path.abspath(folder))
        self._locks = journal.owners("log_files")
        self._loop = asyncio.get_running_loop()
        self._wake, self._stopping, self._hurry = asyncio.Event(), threading.Event(), threading.Event()
        self._told: dict[int, str] = {}
        self._outages = LogOnce(_log, "log_files_not_looked_for", retry_seconds=LOOK_SECONDS)
        journal.call_on_end(self._expect)
        self._turn = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name="log-files")

    async def flush(self) -> None:
        """Write what is missing, without leaving time to others; what fails has been logged then."""
        self._hurry.set()
        await self._write_missing()

    async def aclose(self) -> None:
        """Stop, also in the middle of a file; the next worker with this folder writes it."""
        self._stopping.set()
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._locks.close()

    def _expect(self, transaction: Transaction, number: int) -> None:
        """Part of the transaction that ends an evaluation."""
        transaction.execute("INSERT OR IGNORE INTO log_files VALUES (?, ?, NULL, NULL)", (number, str(self._folder)))
        transaction.after_commit(self._look)

    def _look(self) -> None:
        self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self._write_missing()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _write_missing(self) -> None:
        async with self._turn:
            try:
                for number in await self._journal.read(_missing, str(self._folder)):
                    await self._write_one(number)
                self._outages.worked()
            except JournalUnavailable as error:
                self._outages.failed(error)

    async def _write_one(self, number: int) -> None:
        if not await self._locks.take(number):
            return  # another worker writes it
        try:
            await self._written(number)
        finally:
            self._locks.release(number)

    async def _written(self, number: int) -> None:
        """Write the file of an evaluation whose lock is ours, and say so in its row."""
        file, problem = None, None
        try:
            # Another worker may have written it since it was found missing.
            if number not in await self._journal.read(_missing, str(self._folder)):
                return
            log_id = self._journal.log_id
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, number, log_id))
            try:
                file = await asyncio.shield(writing)
            except asyncio.CancelledError:
                self._stopping.set()
                await asyncio.wait((writing,))
                raise
        except (_Stopped, NotFound):  # NotFound: it was deleted meanwhile
            return
        except (OSError, *self._journal.errors) as error:
            problem = str(error)
        except JournalUnavailable:
            raise
        except Exception as error:  # a bug in the conversion: the evaluation stands, and later logs are written
            _log.exception("log_file_failed")
            problem = repr(error)
        if problem is not None and self._told.get(number) != problem:
            self._told[number] = problem
            _log.warning("log_file_not_written", folder=str(self._folder), reason=problem, retry_seconds=LOOK_SECONDS)
        owned = FencedJournal(self._journal, self._locks, number)
        await owned.submit(lambda transaction: self._note(transaction, number, file, problem))

    def _note(self, transaction: Transaction, number: int, file: str | None, problem: str | None) -> None:
        transaction.execute(
            "UPDATE log_files SET file = ?, problem = ? WHERE number = ? AND folder = ?",
            (file, problem, number, str(self._folder)),
        )

    def _write(self, number: int, log_id: str) -> str:
        """Write a file, in a thread; returns its name."""
        with contextlib.closing(self._journal.connect()) as journal:
            evaluation = self._paths.evaluation(evaluation_of(find_by_number(journal, number)))
            path = self._folder / log_name(evaluation, log_id)
            self._folder.mkdir(parents=True, exist_ok=True)
            for part in self._folder.iterdir():
                # Of a worker that was killed: the lock is ours.
                if part.name.startswith(part_prefix(path)) and part.name.endswith(PART_SUFFIX):
                    part.unlink(missing_ok=True)
            version = importlib.metadata.version("crucible-bridge")
            with whole_file(path) as file:
                writer = EvalFileWriter(file, evaluation, version=version, folder=self._folder)
                with contextlib.closing(writer):
                    token, more = "", True
                    while more:
                        began = time.monotonic()
                        page, token = read_samples(
                            journal,
                            number,
                            verdicts=(),
                            evaluator=None,
                            page_size=PAGE_SAMPLES,
                            page_token=token,
                            records=True,
                            page_bytes=SAMPLE_PAGE_BYTES,
                        )
                        writer.add(evaluation, [self._paths.sample(result) for result in page])
                        more = bool(token)
                        # Half of the time is left to the event loop, which needs the interpreter too.
                        if self._stopping.wait(0.0 if self._hurry.is_set() else time.monotonic() - began):
                            raise _Stopped
                    writer.end()
                # This process may have been stopped meanwhile, for so long that another one has taken its place.
                # Or another attempt has begun, whose file is to be written.
                if number not in _missing(journal, str(self._folder)):
                    raise _Stopped
                if find_by_number(journal, number).attempt != evaluation.attempt:
                    raise _Stopped
        return path.name


def _missing(source: Reads, folder: str) -> list[int]:
    """Evaluations without their file; one that is being removed has no samples that could be written."""
    rows = source.execute(
        """SELECT number FROM log_files WHERE folder = ? AND file IS NULL
           AND number NOT IN (SELECT number FROM removals) ORDER BY number""",
        (folder,),
    )
    return [number for (number,) in rows.fetchall()]
