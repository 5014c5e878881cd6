"""Open journals: in a file, and in PostgreSQL with `pytest.mark.postgres`."""

from tests.unit.journal.journals import database, journal, locks

__all__ = ["database", "journal", "locks"]
