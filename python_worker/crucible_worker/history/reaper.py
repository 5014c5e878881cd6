"""Finds evaluations that have lost their owner, so that they can be resumed."""

from __future__ import annotations

import contextlib
import dataclasses

from crucible_bridge.errors import NotFound
from crucible_bridge.types import EvaluationState
from crucible_worker.history import lifecycle
from crucible_worker.journal import Journal, JournalUnavailable
from crucible_worker.journal.queries import EvaluationRow, Reads, find_by_number, list_rows, spent_of
from crucible_worker.journal.store import Owners

__all__ = ["Reaper"]

_LIVE = (EvaluationState.QUEUED, EvaluationState.RUNNING)


class Reaper:
    """Recognizes evaluations that have lost their owner, and writes their INTERRUPT."""

    def __init__(self, journal: Journal, locks: Owners) -> None:
        self._journal = journal
        self._locks = locks

    async def is_orphan(self, number: int, state: EvaluationState) -> bool:
        """Whether it is recorded as running, and no worker owns it."""
        return state in _LIVE and await self._locks.looks_free(number)

    async def reap(self, row: EvaluationRow) -> EvaluationRow:
        """Write the INTERRUPT of an evaluation if it is an orphan; returns its state then.

        While the journal cannot be written, it counts as interrupted all the same; the event is written later.
        """
        if not await self.is_orphan(row.number, row.state):
            return row
        # Read before the transaction, as there may be millions of samples, and other writers wait for a transaction.
        usage = await self._journal.read(spent_of, row.number)
        try:
            await self._journal.submit(lambda transaction: lifecycle.reap(transaction, self._locks, row.number, usage))
        except JournalUnavailable:
            return dataclasses.replace(row, state=EvaluationState.INTERRUPTED)
        return await self._journal.read(find_by_number, row.number)

    async def reap_all(self) -> None:
        """Write the INTERRUPT of every orphan of the machine."""
        for row in await self._journal.read(_live_rows):
            with contextlib.suppress(NotFound):  # it has been deleted meanwhile
                await self.reap(row)


def _live_rows(connection: Reads) -> list[EvaluationRow]:
    return list_rows(connection, states=_LIVE)[0]
