"""The journal of one worker: a writer, readers, the news of commits by any worker, and what owners alone may write."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_worker.journal.queries import Head
from crucible_worker.journal.schema import prepare, unusable
from crucible_worker.journal.sqlite import SqliteStore
from crucible_worker.journal.store import Owners, Reader, Store, Transaction
from crucible_worker.journal.unavailable import JournalUnavailable
from crucible_worker.journal.writer import Writer
from crucible_worker.util.tasks import Background

__all__ = ["PROBE_SECONDS", "READERS", "STREAM_READERS", "FencedJournal", "Journal"]


READERS = 4
"""Concurrent reads of calls; each thread has a connection."""
STREAM_READERS = 2
"""Concurrent reads of streams, in separate threads so that no other call waits for them: there may be hundreds."""
READ_SECONDS = 10.0
"""Seconds for which a read is tried again on other connections, while the database is there and loses them."""
READ_PAUSE_SECONDS = 0.05
"""Seconds between two such tries."""
PROBE_SECONDS = 0.5
"""Seconds between two tries to write while the journal cannot be written."""
PROBE_BYTES = 64 * 1024
"""What a try writes: a disk that takes less than this is still full."""

T = TypeVar("T")


class Journal:
    """Reads and writes; open it with `Journal.open` inside a running event loop."""

    def __init__(self, store: Store, encode_event: Callable[[Event], bytes]) -> None:
        """See `open`."""
        self._store = store
        self.background = Background()
        """The tasks that run as long as the journal is open."""
        self._loop = asyncio.get_running_loop()
        self._readers = concurrent.futures.ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")
        self._stream_readers = concurrent.futures.ThreadPoolExecutor(STREAM_READERS, thread_name_prefix="stream-reader")
        self._connections: list[Reader] = []
        self._local = threading.local()
        self._status = store.status(self.background)
        self.commits = self._status.commits
        """Reports commits of this worker and of others."""
        self._writer = Writer(store, encode_event, on_commit=self._committed, on_failure=self._failed)
        self.writable = True
        """Whether the last transaction could be written."""
        self.on_writable_change: Callable[[bool], None] = lambda writable: None
        """Called on the loop when `writable` changes."""
        self.on_written: Callable[[int, int], None] = lambda after, through: None
        """Called on the loop when this worker has written events: after one sequence, up to and with another."""
        self._recovery: asyncio.Task[None] | None = None
        self._beats = None
        if store.beat_seconds is not None:
            self._beats = self.background.keep("journal-beats", functools.partial(self._beat, store.beat_seconds))
        self._closed = False

    @property
    def folder(self) -> Path:
        """Where this machine has files that belong to it: the state directory."""
        return self._store.folder

    @classmethod
    async def open(cls, state_dir: Path, encode_event: Callable[[Event], bytes], *, url: str | None = None) -> Journal:
        """Open the journal of a state directory, or of a database; create it if there is none.

        Args:
            state_dir: shared by every worker of the machine.
            encode_event: encodes an event to the bytes that are recorded and sent.
            url: of a PostgreSQL database, which workers of several machines share; the state directory if None.

        Raises:
            FailedPrecondition: the directory or the database cannot be used.
        """
        if url is not None:
            try:
                from crucible_worker.journal import postgres
            except ModuleNotFoundError as error:
                raise FailedPrecondition(
                    f"--journal needs {error.name}, which is not installed: pip install 'crucible-bridge[postgres]'",
                    reason=Reason.JOURNAL_UNUSABLE,
                ) from None
            return cls(await asyncio.to_thread(postgres.prepare, url, state_dir), encode_event)
        ended = threading.Event()
        try:
            path = await asyncio.to_thread(prepare, state_dir, ended)
        finally:
            ended.set()
        try:
            return cls(SqliteStore(path), encode_event)
        except sqlite3.Error as error:  # damaged since it was prepared
            raise unusable(state_dir, error) from error

    @property
    def log_id(self) -> str:
        """Identity of the event log; a new journal has a new one, and so has a copy.

        Raises:
            JournalUnavailable: the journal cannot be read just now.
        """
        return self.head().log_id

    def last_sequence(self) -> int:
        """Sequence of the log's last event.

        Raises:
            JournalUnavailable: the journal cannot be read just now.
        """
        return self.head().sequence

    def head(self) -> Head:
        """The event log as a whole, without waiting.

        Raises:
            JournalUnavailable: the journal cannot be read just now.
        """
        if self._closed:
            raise JournalUnavailable("the worker is draining", reason=Reason.DRAINING)
        try:
            return self._status.head()
        except self._store.errors as error:
            raise self._unreadable(error) from error

    async def read(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Apply a function to a connection of a reader's thread.

        Raises:
            JournalUnavailable: the journal cannot be read just now (reason JOURNAL_UNREADABLE).
        """
        return await self._read(self._readers, function, *arguments, **named)

    async def read_stream(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Apply a function to a connection of a thread that reads for streams, which read again and again.

        Raises:
            JournalUnavailable: as `read` does.
        """
        return await self._read(self._stream_readers, function, *arguments, **named)

    async def _read(
        self, threads: concurrent.futures.Executor, function: Callable[..., T], *arguments: Any, **named: Any
    ) -> T:
        def apply() -> T:
            while True:
                try:
                    return function(self._connection(), *arguments, **named)
                except self._store.errors as error:
                    if not self._left_connection(error):
                        raise

        until = time.monotonic() + READ_SECONDS
        while True:
            is_there = await self._status.returns()
            if self._closed:
                raise JournalUnavailable("the worker is draining", reason=Reason.DRAINING)
            try:
                return await self._loop.run_in_executor(threads, apply)
            except self._store.errors as error:
                if not is_there or not self._store.is_lost(error) or time.monotonic() > until:
                    raise self._unreadable(error) from error
            await asyncio.sleep(READ_PAUSE_SECONDS)

    def call_on_end(self, action: Callable[[Transaction, int], None]) -> None:
        """Call it too, in the writer's thread, in each transaction that ends an evaluation, with its number."""
        self._writer.call_on_end(action)

    def submit(self, function: Callable[[Transaction], T], size: int = 1) -> asyncio.Future[T]:
        """Apply a function in the next transaction; see `Writer.submit`."""
        return self._writer.submit(function, size)

    def owners(self, kind: str) -> Owners:
        """Which worker has each of the things of a kind; close them.

        Args:
            kind: "owners" of evaluations, say.
        """
        return self._store.owners(kind, self.submit, self.read)

    def leads(self, transaction: Transaction) -> bool:
        """Whether this worker is the one whose clocks count, inside a transaction; see `Store.leads`."""
        return self._store.leads(transaction)

    def connect(self) -> Reader:
        """A connection for a long read in a thread of the caller's, who closes it; it raises `errors`."""
        return self._store.connect()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the database raises when it fails."""
        return self._store.errors

    async def aclose(self) -> None:
        """Write what was submitted, then close everything."""
        self._closed = True
        for task in filter(None, (self._recovery, self._beats)):
            task.cancel()
            await asyncio.wait([task])
        await self._status.aclose()
        for threads in (self._stream_readers, self._readers):
            await asyncio.to_thread(threads.shutdown)
        for connection in self._connections:
            connection.close()
        # Last: the last connection of all workers moves the WAL into the journal, which a read-only one cannot do.
        await self._writer.close()

    def _unreadable(self, error: Exception) -> JournalUnavailable:
        if self._store.is_lasting(error):
            # Not a transient error: the journal is damaged. Health says so until it can be written again.
            self._loop.call_soon_threadsafe(self._failed, str(error))
        return JournalUnavailable(f"the journal cannot be read: {error}", reason=Reason.JOURNAL_UNREADABLE)

    def _connection(self) -> Reader:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._store.connect()
            self._connections.append(connection)
        return connection

    def _left_connection(self, error: Exception) -> bool:
        """Leave this thread's connection if it is of no use any more; False if there is none, or nothing to leave."""
        connection = getattr(self._local, "connection", None)
        if connection is None or not self._store.is_lost(error):
            return False
        self._local.connection = None
        self._connections.remove(connection)
        connection.close()
        return True

    def _committed(self, before: int, after: int) -> None:
        self._status.committed(after)
        if after > before:
            self.on_written(before, after)
        self._set_writable(True)

    def _failed(self, cause: str) -> None:
        self._set_writable(False)
        if self._recovery is None or self._recovery.done():
            self._recovery = self.background.keep("journal-recovery", self._recover)

    def _set_writable(self, writable: bool) -> None:
        if writable != self.writable:
            self.writable = writable
            self.on_writable_change(writable)

    async def _beat(self, seconds: float) -> None:
        """Write nothing now and then: each transaction shows that this worker lives."""
        while True:
            with contextlib.suppress(JournalUnavailable):  # `_failed` has been called
                await self.submit(_write_nothing)
            await asyncio.sleep(seconds)

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                await self.submit(_probe)
            except JournalUnavailable:
                continue
            return


def _write_nothing(transaction: Transaction) -> None:
    pass


def _probe(transaction: Transaction) -> None:
    transaction.execute("INSERT OR REPLACE INTO probe VALUES (1, ?)", (bytes(PROBE_BYTES),))


# What the owner of an evaluation writes: nothing, once it is no longer the owner.


class FencedJournal:
    """A journal, as an owner uses it: every transaction checks first that it is still the owner."""

    def __init__(self, journal: Journal, owners: Owners, number: int) -> None:
        """For something that this worker owns.

        Args:
            journal: the worker's.
            owners: the worker's.
            number: what it owns.
        """
        self._journal, self._owners, self._number = journal, owners, number
        self.commits = journal.commits
        """See `Journal.commits`."""

    @property
    def folder(self) -> Path:
        """See `Journal.folder`."""
        return self._journal.folder

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """See `Journal.errors`."""
        return self._journal.errors

    async def read(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """See `Journal.read`."""
        return await self._journal.read(function, *arguments, **named)

    def submit(self, function: Callable[[Transaction], T], size: int = 1) -> asyncio.Future[T]:
        """As `Journal.submit`; the future gets OwnershipLost if this worker is no longer the owner."""

        def checked(transaction: Transaction) -> T:
            self._owners.check(self._number, transaction)
            return function(transaction)

        return self._journal.submit(checked, size)

    async def confirm(self) -> None:
        """See `Owners.confirm`."""
        await self._owners.confirm(self._number)
