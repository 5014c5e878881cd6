"""What the tests of evaluations and their journal share."""

from __future__ import annotations

import pytest

from tests.unit.runs.journals import open_journal


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request):
    """The URL of the database of a journal; None for a file in the state directory."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_server").new_database()


@pytest.fixture
async def journal(tmp_path, database):
    """An open journal, of each kind."""
    async with open_journal(tmp_path, database) as opened:
        yield opened


@pytest.fixture
async def locks(journal):
    """The owners of the journal's evaluations, at its worker."""
    opened = journal.owners("owners")
    yield opened
    opened.close()
