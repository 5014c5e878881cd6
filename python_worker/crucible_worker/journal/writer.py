"""The one thread of a process that writes to the journal.

A caller submits a function of a Transaction. The thread collects what was submitted, applies it in order inside one
transaction, and answers all of it after the commit: a batch of 1,024 costs little more than a batch of one. The
database makes a writer wait for those of other workers, which is why this never runs on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

import structlog

from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_worker.journal.store import Store, Transaction
from crucible_worker.journal.unavailable import JournalUnavailable

__all__ = ["MAX_BATCH", "Writer"]

MAX_BATCH = 1024
"""Total size of submissions at which a transaction accepts no further one."""

_STOP = object()
_log = structlog.get_logger(__name__)


class _Submission:
    __slots__ = ("error", "function", "future", "result", "size")

    def __init__(self, function: Callable[[Transaction], Any], future: asyncio.Future[Any], size: int) -> None:
        self.function = function
        self.future = future
        self.size = size
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """Owns the writing connection and its thread."""

    def __init__(
        self,
        store: Store,
        encode_event: Callable[[Event], bytes],
        *,
        on_commit: Callable[[int, int], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Start the thread.

        Args:
            store: where the journal is kept.
            encode_event: encodes an event to the bytes that are recorded.
            on_commit: called on the loop after each commit, with the log's last sequences before and after it.
            on_failure: called on the loop when a transaction could not be written, with the cause.
        """
        self._loop = asyncio.get_running_loop()
        self._encode_event = encode_event
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._actions_on_end: tuple[Callable[[Transaction, int], None], ...] = ()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._writing, self._store_errors = store.writing(), store.errors
        self._errors = (*store.errors, OSError)
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self._closing = False
        self._thread.start()

    def submit(self, function: Callable[[Transaction], Any], size: int = 1) -> asyncio.Future[Any]:
        """Apply a function in the next batch; the future is done after its commit.

        An error that the function raises undoes only that function and is set on its future. When the batch cannot be
        written, every future of it gets JournalUnavailable.

        Args:
            function: what to apply.
            size: how much it writes, roughly in events: other workers' writers wait while a batch is written.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closing:
            future.set_exception(JournalUnavailable("the worker is draining", reason=Reason.DRAINING))
            return future
        self._queue.put(_Submission(function, future, size))
        return future

    def call_on_end(self, action: Callable[[Transaction, int], None]) -> None:
        """Call it too in each transaction that ends an evaluation; see `Transaction.on_end`."""
        self._actions_on_end = (*self._actions_on_end, action)

    def _on_end(self, transaction: Transaction, number: int) -> None:
        for action in self._actions_on_end:
            action(transaction, number)

    async def close(self) -> None:
        """Write what was submitted, then end the thread."""
        if not self._closing:
            self._closing = True
            self._queue.put(_STOP)
            self._writing.hurry()
        await self._loop.run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch = self._gathered()
            if _STOP in batch:
                stopping = True
                batch.remove(_STOP)
            if batch:
                self._write(batch)
        self._writing.close()

    def _gathered(self) -> list[Any]:
        """The submissions until now: at least one, and no more once they are large enough."""
        batch, size = [self._queue.get()], 0
        while batch[-1] is not _STOP and (size := size + batch[-1].size) < MAX_BATCH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    def _write(self, batch: list[_Submission]) -> None:
        failure, written = "", (0, 0)
        try:
            written = self._commit(batch)
        except self._errors as error:
            failure = str(error)
            for submission in batch:
                submission.error = JournalUnavailable(f"the journal cannot be written: {error}")
        except Exception as error:  # a bug: it must not end the only writing thread, as all others would wait for it
            _log.exception("writer_failed")
            failure = repr(error)
            for submission in batch:
                submission.error = JournalUnavailable(f"the journal cannot be written: {failure}")
        try:
            self._loop.call_soon_threadsafe(self._answer, batch, failure, written)
        except RuntimeError:
            # The loop is closed: the process ends, and no caller waits for an answer any more.
            self._closing = True

    def _commit(self, batch: list[_Submission]) -> tuple[int, int]:
        """Write a batch; the log's last sequences before and after it."""
        while True:
            try:
                return self._commit_once(batch)
            except Exception as error:
                self._writing.roll_back()
                if not isinstance(error, self._errors) or not self._writing.recovers(error):
                    raise

    def _commit_once(self, batch: list[_Submission]) -> tuple[int, int]:
        log = self._writing.begin()
        transaction = Transaction(self._writing.source, log, self._encode_event, self._on_end)
        before = transaction.sequence
        try:
            for submission in batch:
                self._apply(submission, transaction)
            self._writing.commit(before, transaction.sequence)
        except Exception:
            for action in transaction._if_undone:
                action()
            raise
        for action in transaction._after_commit:
            action()
        return before, transaction.sequence

    def _apply(self, submission: _Submission, transaction: Transaction) -> None:
        execute = self._writing.source.execute
        sequence = transaction.sequence
        submission.error = None
        committed, undone = len(transaction._after_commit), len(transaction._if_undone)
        execute("SAVEPOINT submission")
        try:
            submission.result = submission.function(transaction)
        except self._store_errors:
            raise
        except Exception as error:  # any error of the function is passed to its submitter
            execute("ROLLBACK TO submission")
            transaction.sequence = sequence
            del transaction._after_commit[committed:]
            for action in transaction._if_undone[undone:]:
                action()
            del transaction._if_undone[undone:]
            submission.error = error
        execute("RELEASE submission")

    def _answer(self, batch: list[_Submission], failure: str, written: tuple[int, int]) -> None:
        for submission in batch:
            if submission.future.done():
                continue
            if submission.error is not None:
                submission.future.set_exception(submission.error)
            else:
                submission.future.set_result(submission.result)
        if failure:
            self._on_failure(failure)
        else:
            self._on_commit(*written)
