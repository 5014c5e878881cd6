"""What the owner of an evaluation writes: nothing, once it is no longer the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crucible_worker.journal.journal import Journal
from crucible_worker.journal.store import Owners
from crucible_worker.journal.transaction import Transaction

__all__ = ["FencedJournal"]

T = TypeVar("T")


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
        self.news = journal.news
        """See `Journal.news`."""

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
