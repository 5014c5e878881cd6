"""What a journal needs of the database that it is kept in. `sqlite` is one; all else in `runs` knows none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from crucible_worker.journal.commit_notifier import CommitNotifier
from crucible_worker.journal.queries import Head, Reads, SnapshotReads
from crucible_worker.journal.transaction import Transaction
from crucible_worker.util.background import Background

__all__ = ["JournalStatus", "Owners", "Reader", "Store", "Submit", "Writing"]


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
    def news(self) -> CommitNotifier:
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

    def glance(self, background: Background) -> JournalStatus:
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
