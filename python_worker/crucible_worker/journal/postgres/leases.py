"""Which worker owns what, in a PostgreSQL journal; see `sessions`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import structlog

from crucible_worker.journal.postgres.sessions import LIVES, Session
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.store import Submit
from crucible_worker.journal.transaction import Transaction
from crucible_worker.journal.unavailable import OwnershipLost

__all__ = ["Leases"]

RELEASE_SECONDS = 0.5
"""Seconds between two tries to release what could not be released while the database was away."""

_log = structlog.get_logger(__name__)


class Leases:
    """What one worker owns of one kind; see `crucible_worker.journal.store.Owners`."""

    def __init__(self, kind: str, session: Session, submit: Submit, read: Callable[..., Any]) -> None:
        """Own nothing yet.

        Args:
            kind: what is owned.
            session: the worker's.
            submit: applies a function in the next transaction.
            read: applies a function to a connection that reads.
        """
        self._kind, self._session, self._submit, self._read = kind, session, submit, read
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, int] = {}
        self._guard = threading.Lock()
        self._closed = False

    def acquire(self, number: int, transaction: Transaction) -> bool:
        """Become the owner, inside a transaction; False if any worker is, this one included."""
        if not self.is_free(number, transaction):
            return False
        token = self._session.token
        transaction.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)", (self._kind, number, token))
        with self._guard:
            self._held[number] = token
        transaction.if_undone(lambda: self._drop(number))
        return True

    def is_free(self, number: int, transaction: Transaction) -> bool:
        """Whether no worker is the owner; removes the session of an owner that is dead."""
        found = _owner(transaction, self._kind, number)
        if found is None:
            return True
        session, lives = found
        if not lives:
            transaction.execute("DELETE FROM sessions WHERE session = ?", (session,))
            _log.info("session_ended", session=session, reason="its lease is over, or its connection is gone")
        return not lives

    async def take(self, number: int) -> bool:
        """As `acquire`, outside of a transaction."""
        return await self._submit(lambda transaction: self.acquire(number, transaction))

    async def looks_free(self, number: int) -> bool:
        """Whether no worker seems to be the owner."""
        found = await self._read(_owner, self._kind, number)
        return found is None or not found[1]

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse to write for what this worker owns no longer."""
        with self._guard:
            token = self._held.get(number)
        if token != self._session.token:
            raise OwnershipLost()

    async def confirm(self, number: int) -> None:
        """As `check`, outside of a transaction."""
        await self._submit(lambda transaction: self.check(number, transaction))

    def release(self, number: int) -> None:
        """Be no longer the owner, as soon as the database can be told; does nothing if this worker is not."""
        token = self._forget(number)
        if token is not None:
            self._tell(number, token)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the owner from the commit of a transaction on."""
        self._remove(transaction, number, self._session.token)
        transaction.after_commit(lambda: self._drop(number))

    def close(self) -> None:
        """Own nothing any more: the session ends with the writer."""
        self._closed = True

    def _forget(self, number: int) -> int | None:
        with self._guard:
            return self._held.pop(number, None)

    def _drop(self, number: int) -> None:
        self._forget(number)

    def _tell(self, number: int, token: int) -> None:
        if not self._closed:
            told = self._submit(lambda transaction: self._remove(transaction, number, token))
            told.add_done_callback(lambda future: self._told(future, number, token))

    def _told(self, future: asyncio.Future[None], number: int, token: int) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._loop.call_later(RELEASE_SECONDS, self._tell, number, token)

    def _remove(self, transaction: Transaction, number: int, token: int) -> None:
        sql = "DELETE FROM owners WHERE kind = ? AND number = ? AND session = ?"
        transaction.execute(sql, (self._kind, number, token))


def _owner(source: Reads, kind: str, number: int) -> tuple[int, bool] | None:
    """The session that owns something, and whether it lives."""
    sql = f"SELECT session, {LIVES} FROM owners JOIN sessions USING (session) WHERE kind = ? AND number = ?"
    return source.execute(sql, (kind, number)).fetchone()
