"""What the tests of evaluations and their journal share."""

from __future__ import annotations

import pytest

from tests.unit.runs.journals import open_journal, owner_locks


@pytest.fixture
async def journal(tmp_path):
    """An open journal."""
    async with open_journal(tmp_path) as opened:
        yield opened


@pytest.fixture
def locks(tmp_path):
    """The owner's locks."""
    with owner_locks(tmp_path) as opened:
        yield opened
