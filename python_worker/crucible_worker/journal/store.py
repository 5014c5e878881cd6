"""What a journal needs of the database that it is kept in: transactions, news of commits, owners. `sqlite` is one."""

from __future__ import annotations

import asyncio
import functools
import re
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from crucible_bridge.events import NEW_KINDS, Event
from crucible_bridge.reasons import Reason
from crucible_worker.journal.queries import Head, Reads, SnapshotReads, StatementResult
from crucible_worker.journal.unavailable import JournalUnavailable
from crucible_worker.util.tasks import Background

__all__ = [
    "POLL_SECONDS",
    "ROWS_TOGETHER",
    "CommitNotifier",
    "JournalStatus",
    "Owners",
    "PollingNotifier",
    "Reader",
    "Store",
    "Submit",
    "Transaction",
    "Writing",
    "without_password",
]

# What a submitted function gets: statements, the log's next sequence, and what is done after the commit or instead.

ROWS_TOGETHER = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one INSERT, largest first. SQLite releases the interpreter's lock at every statement and waits
for it again, up to 5 ms while the loop is busy. There are few sizes, so that each is compiled once."""


class Transaction:
    """The argument of a submitted function. No other worker writes meanwhile: what is read does not change."""

    def __init__(
        self,
        connection: Reads,
        log: Head,
        encode_event: Callable[[Event], bytes],
        on_end: Callable[[Transaction, int], None],
    ) -> None:
        self.on_end = on_end
        """Called in the transaction that ends an evaluation, with it and the evaluation's number."""
        self._connection = connection
        self._encode_event = encode_event
        self._after_commit: list[Callable[[], None]] = []
        self._if_undone: list[Callable[[], None]] = []
        self.log = log
        """The log as it was before this transaction."""
        self.sequence: int = self.log.sequence
        """Sequence of the log's last event, those of this transaction included."""

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> StatementResult:
        """Run one statement."""
        return self._connection.execute(sql, parameters)

    def insert(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows of equal width, `ROWS_TOGETHER` with one statement: `insert("INSERT INTO probe VALUES", rows)`.

        The word VALUES of the statement stands for the rows.
        """
        start = 0
        for count in ROWS_TOGETHER:
            while len(rows) - start >= count:
                values = tuple(chain.from_iterable(rows[start : start + count]))
                self._connection.execute(_for_rows(sql, len(rows[start]), count), values)
                start += count

    def append(self, number: int, events: Sequence[Event]) -> int:
        """Append events to the log; returns the last sequence. `number` is their evaluation's, or 0."""
        rows: list[tuple[object, ...]] = []
        for sequence, event in enumerate(events, self.sequence + 1):
            row = (sequence, number, event.kind.value, event.run_id, self._encode_event(event))
            if event.kind in NEW_KINDS:
                self.insert("INSERT INTO later_events VALUES", [row])
            else:
                rows.append(row)
        self.insert("INSERT INTO events VALUES", rows)
        self.sequence += len(events)
        return self.sequence

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` after the commit, and only then; it must not raise."""
        self._after_commit.append(action)

    def if_undone(self, action: Callable[[], None]) -> None:
        """Call `action` only if this is not committed, to undo changes outside the journal; it must not raise.

        It is called when the submitted function is undone, because it raised, or the whole transaction.
        """
        self._if_undone.append(action)


@functools.cache
def _for_rows(sql: str, width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return sql.replace("VALUES", f"VALUES {', '.join([row] * count)}")


# News of commits by any worker.
#
# SQLite reports in 2.5 us whether another connection has committed (`PRAGMA data_version`). So polling 50 times a
# second costs nothing, does not block the event loop, and works across processes without any channel between them.

POLL_SECONDS = 0.02
"""Seconds between two polls for other workers' commits, while a call waits."""


class CommitNotifier:
    """Wakes the calls that wait for a commit. One per journal and worker, used on the loop only."""

    def __init__(self) -> None:
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._count = 0

    @property
    def count(self) -> int:
        """Grows with every commit seen; what `wait` compares."""
        return self._count

    def publish(self) -> None:
        """A worker has committed."""
        self._wake()

    async def wait(self, seen: int, at_most: float) -> int:
        """Wait until `count` is no longer `seen`, for `at_most` seconds; returns `count`.

        Raises:
            JournalUnavailable: the journal is closed.
        """
        if self._closed:
            raise JournalUnavailable("the worker is draining", reason=Reason.DRAINING)
        if self._count == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            self._schedule()
            try:
                await asyncio.wait([future], timeout=at_most)
            finally:
                self._waiting.discard(future)
        return self._count

    def close(self) -> None:
        """Wake all waiting calls; there are no news any more."""
        self._closed = True
        self._wake()

    def _schedule(self) -> None:
        """Called when a call begins to wait."""

    def _wake(self) -> None:
        self._count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class PollingNotifier(CommitNotifier):
    """News of a SQLite journal."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Poll this connection, which `close` closes."""
        super().__init__()
        self._connection = connection
        self._version = self._data_version()
        self._poll: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Wake all waiting calls and stop polling."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        super().close()
        self._connection.close()

    def _data_version(self) -> int:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def _schedule(self) -> None:
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_SECONDS, self._ask)

    def _ask(self) -> None:
        self._poll = None
        try:
            version = self._data_version()
        except sqlite3.DatabaseError:
            # The disk fails. Waiting calls are woken: their next read or write raises the error.
            version = None
        if version != self._version:
            self._version = version
            self._wake()
        if self._waiting:
            self._schedule()


# The URL of a journal, as people may see it.


def without_password(url: str) -> str:
    """The URL for people: without a password."""
    return re.sub(r"(//[^/:@]*):[^@/]*@", r"\1@", re.sub(r"(password=)[^&\s]*", r"\1...", url))


Submit: TypeAlias = Callable[[Callable[[Transaction], Any]], asyncio.Future[Any]]
"""Applies a function in the next transaction; see `Journal.submit`."""


class Owners(Protocol):
    """Which worker has each of the things that only one worker may have at a time: the owners of evaluations, say."""

    def acquire(self, number: int, transaction: Transaction, /) -> bool:
        """Become the owner, inside a transaction; False if any worker is, this one included.

        If the transaction is undone, `release` is to be called: see `Transaction.if_undone`.
        """
        ...

    def is_free(self, number: int, transaction: Transaction, /) -> bool:
        """Whether no worker is the owner, inside a transaction: what owned it before can write no more."""
        ...

    async def take(self, number: int) -> bool:
        """As `acquire`, on the loop and outside of a transaction."""
        ...

    async def looks_free(self, number: int) -> bool:
        """Whether no worker seems to be the owner, on the loop: a transaction that relies on it asks `is_free`."""
        ...

    def check(self, number: int, transaction: Transaction, /) -> None:
        """Refuse to write for an owner that is none any more, inside a transaction.

        Raises:
            OwnershipLost: another worker was or is the owner meanwhile.
        """
        ...

    async def confirm(self, number: int) -> None:
        """As `check`, on the loop: what is changed next outside of the journal is changed by its owner.

        It costs nothing where an owner that lives cannot lose what it owns.

        Raises:
            OwnershipLost: another worker was or is the owner meanwhile.
            JournalUnavailable: nobody can tell just now.
        """
        ...

    def release(self, number: int) -> None:
        """Be no longer the owner; does nothing if this worker is not. It does not block."""
        ...

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the owner from the commit of a transaction on."""
        ...

    def close(self) -> None:
        """Own nothing any more."""
        ...


class Reader(SnapshotReads, Protocol):
    """A connection that only reads, in one thread at a time."""

    def close(self) -> None:
        """Close it."""
        ...


class Writing(Protocol):
    """The connection that writes, in the writer's thread."""

    @property
    def source(self) -> Reads:
        """Runs the statements of a transaction."""
        ...

    def begin(self) -> Head:
        """Begin a transaction in which no other worker writes; returns the log as committed."""
        ...

    def commit(self, before: int, sequence: int) -> None:
        """Commit, with the log's last sequences before and after the transaction."""
        ...

    def roll_back(self) -> None:
        """Undo the transaction, if there is one; logs what fails."""
        ...

    def recovers(self, error: Exception) -> bool:
        """Whether a batch that failed so, and was rolled back, may be applied again at once."""
        ...

    def hurry(self) -> None:
        """Wait for nothing any more: the worker ends. Called by another thread."""
        ...

    def close(self) -> None:
        """Close it; the last call of all."""
        ...


class JournalStatus(Protocol):
    """What the event loop asks of the journal without waiting."""

    @property
    def commits(self) -> CommitNotifier:
        """Reports commits of this worker and of others."""
        ...

    def head(self) -> Head:
        """The log, as far as it is known."""
        ...

    async def returns(self) -> bool:
        """Wait until a database that is away is there again; False if it is away for too long, True if it is not."""
        ...

    def committed(self, sequence: int) -> None:
        """This worker has committed, and the log's last sequence is this."""
        ...

    async def aclose(self) -> None:
        """End the news."""
        ...


class Store(Protocol):
    """A journal's database; it is ready to be used."""

    @property
    def folder(self) -> Path:
        """Where this machine has files that belong to the journal."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What connections raise when the database fails."""
        ...

    def connect(self) -> Reader:
        """Another connection that only reads."""
        ...

    def writing(self) -> Writing:
        """The connection that writes."""
        ...

    def status(self, background: Background) -> JournalStatus:
        """What the running event loop asks; its tasks are in `background`."""
        ...

    @property
    def beat_seconds(self) -> float | None:
        """Seconds after which a worker with nothing to write writes nothing, to show that it lives; None if never."""
        ...

    def owners(self, kind: str, submit: Submit, read: Callable[..., Any]) -> Owners:
        """Owners of one kind of things, in this worker.

        Args:
            kind: "owners" of evaluations, say.
            submit: applies a function in the next transaction.
            read: applies a function to a connection that reads, in a thread.
        """
        ...

    def leads(self, transaction: Transaction) -> bool:
        """Whether this worker's clocks count, inside a transaction: machines have different ones."""
        ...

    def is_lasting(self, error: Exception) -> bool:
        """Whether an error of a reader shows that the journal is damaged."""
        ...

    def is_lost(self, error: Exception) -> bool:
        """Whether a reader's connection is of no use after an error, and the read may be tried again on another."""
        ...
