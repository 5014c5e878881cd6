"""The journal: records of every evaluation, sample and event of this machine. One SQLite file for all workers."""

from crucible_worker.journal.journal import Journal
from crucible_worker.journal.store import Transaction
from crucible_worker.journal.unavailable import JournalUnavailable, OwnershipLost

__all__ = ["Journal", "JournalUnavailable", "OwnershipLost", "Transaction"]
