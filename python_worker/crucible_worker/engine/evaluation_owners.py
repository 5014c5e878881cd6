"""Which worker has an evaluation: its lead, and the holders of its parts while its work is shared.

An evaluation is free when no lease of it lives: neither its lead's nor that of a part. So its INTERRUPT is written, and
another attempt begins, only when nobody can write for it any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.parts import held_parts
from crucible_worker.journal.queries import Reads

__all__ = ["EvaluationOwners"]


class EvaluationOwners:
    """What one worker has of evaluations; see `crucible_worker.journal.store.Owners`."""

    def __init__(self, journal: Journal) -> None:
        """Own nothing yet."""
        self.leads, self.parts = journal.owners("owners"), journal.owners("parts")
        """The leads of evaluations by their number, and the holders of parts by theirs."""
        self._journal = journal

    def acquire(self, number: int, transaction: Transaction) -> bool:
        """Become the owner, inside a transaction; False if a lease of the evaluation lives."""
        return self.is_free(number, transaction) and self.leads.acquire(number, transaction)

    def acquire_lead(self, number: int, transaction: Transaction) -> bool:
        """Become the lead while parts of the evaluation are leased, inside a transaction; False if there is a lead."""
        return self.leads.acquire(number, transaction)

    def is_free(self, number: int, transaction: Transaction) -> bool:
        """Whether no lease of the evaluation lives, inside a transaction."""
        return self.leads.is_free(number, transaction) and not self.is_worked_on(number, transaction)

    def is_worked_on(self, number: int, transaction: Transaction) -> bool:
        """Whether the lease of a part lives, inside a transaction."""
        return not all(self.parts.is_free(part, transaction) for part in _one_of_each(transaction, number))

    async def take(self, number: int) -> bool:
        """As `acquire`, on the loop and outside of a transaction."""
        return await self._journal.submit(lambda transaction: self.acquire(number, transaction))

    async def looks_free(self, number: int) -> bool:
        """Whether no lease of the evaluation seems to live, on the loop."""
        if not await self.leads.looks_free(number):
            return False
        for part in await self._journal.read(_one_of_each, number):
            if not await self.parts.looks_free(part):
                return False
        return True

    def check(self, number: int, transaction: Transaction) -> None:
        """Refuse to write for a lead that is none any more; see `Owners.check`."""
        self.leads.check(number, transaction)

    async def confirm(self, number: int) -> None:
        """Refuse what a lead that is none any more would change elsewhere; see `Owners.confirm`."""
        await self.leads.confirm(number)

    def release(self, number: int) -> None:
        """Be no longer the lead; does nothing if this worker is not."""
        self.leads.release(number)

    def release_in(self, transaction: Transaction, number: int) -> None:
        """Be no longer the lead from the commit of a transaction on."""
        self.leads.release_in(transaction, number)

    def close(self) -> None:
        """Own nothing any more."""
        self.leads.close()
        self.parts.close()


def _one_of_each(source: Reads, number: int) -> Sequence[int]:
    """A part of each holder: what a holder has lives and dies together."""
    return list(held_parts(source, number).values())
