"""The journal: what every evaluation, sample and event of this machine is kept in. One SQLite file for all workers."""

from crucible_worker.runs.journal.journal import Journal
from crucible_worker.runs.journal.writer import JournalUnavailable, Transaction

__all__ = ["Journal", "JournalUnavailable", "Transaction"]
