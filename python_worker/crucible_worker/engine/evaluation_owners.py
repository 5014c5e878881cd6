"""Which worker owns an evaluation.

Workers of an earlier release with `--share-work` may run parts of one whose owner is gone. It is free once none of them
lives any more: they are recorded in the table `parts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.queries import Reads

__all__ = ["EvaluationOwners"]


class EvaluationOwners:
    """What one worker owns of evaluations; see `crucible_worker.journal.store.Owners`."""

    def __init__(self, journal: Journal) -> None:
        """Own nothing yet."""
        self._owners, self._parts = journal.owners("owners"), journal.owners("parts")
        self._journal = journal

    def acquire(self, number: int, transaction: Transaction) -> bool:
        """Become the owner, inside a transaction; False if the evaluation is another worker's."""
        return self._has_no_parts(number, transaction) and self._owners.acquire(number, transaction)

    def is_free(self, number: int, transaction: Transaction) -> bool:
        """Whether no worker has the evaluation, inside a transaction."""
        return self._owners.is_free(number, transaction) and self._has_no_parts(number, transaction)

    async def take(self, number: int) -> bool:
        """As `acquire`, on the loop and outside of a transaction."""
        return await self._journal.submit(lambda transaction: self.acquire(number, transaction))

    async def looks_free(self, number: int) -> bool:
        """Whether no worker seems to have the evaluation, on the loop."""
        if not await self._owners.looks_free(number):
            return False
        for part in await self._journal.read(_one_of_each_holder, number):
            if not await self._parts.looks_free(part):
                return False
        return True

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse to write for an owner that is none any more; see `Owners.check`."""
        self._owners.check(number, transaction)

    async def confirm(self, number: int) -> None:
        """Refuse what an owner that is none any more would change elsewhere; see `Owners.confirm`."""
        await self._owners.confirm(number)

    def release(self, number: int) -> None:
        """Be no longer the owner; does nothing if this worker is not."""
        self._owners.release(number)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the owner from the commit of a transaction on."""
        self._owners.release_in(transaction, number)

    def close(self) -> None:
        """Own nothing any more."""
        self._owners.close()
        self._parts.close()

    def _has_no_parts(self, number: int, transaction: Transaction) -> bool:
        return all(self._parts.is_free(part, transaction) for part in _one_of_each_holder(transaction, number))


def _one_of_each_holder(source: Reads, number: int) -> Sequence[int]:
    """A part of each worker that has some: they live and die together."""
    sql = "SELECT MIN(part) FROM parts WHERE number = ? AND holder IS NOT NULL GROUP BY holder"
    return [part for (part,) in source.execute(sql, (number,)).fetchall()]
