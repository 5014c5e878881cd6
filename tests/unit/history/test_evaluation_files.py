"""Files of evaluations: they stay as long as the journal knows their evaluation, and no longer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from crucible_worker.history.retention import folder_of, remove_forgotten
from tests.unit.journal.journals import claim


def _fill(folder: Path) -> Path:
    (folder / "0").mkdir(parents=True)
    (folder / "0" / "task.eval").write_text("log")
    return folder


async def test_files_go_with_their_evaluation(journal, locks):
    """Those of an evaluation that is there stay, whatever its state."""
    row = (await claim(journal, locks)).row
    folder = _fill(folder_of(journal.folder, row))

    assert await remove_forgotten(journal) == 0
    assert (folder / "0" / "task.eval").read_text() == "log"

    await journal.submit(lambda transaction: transaction.execute("DELETE FROM evaluations"))
    assert await remove_forgotten(journal) == 1
    assert not folder.exists()


async def test_files_of_an_earlier_journal_are_not_those_of_this_one(journal, locks):
    """Its evaluations had the same numbers, and were created at other times."""
    row = (await claim(journal, locks)).row
    own = _fill(folder_of(journal.folder, row))
    earlier = _fill(folder_of(journal.folder, dataclasses.replace(row, created_ns=row.created_ns - 1)))

    assert await remove_forgotten(journal) == 1
    assert own.exists()
    assert not earlier.exists()


async def test_what_no_evaluation_made_stays(journal, locks):
    """A folder of another name is somebody's; and where nothing is kept there is nothing to do."""
    assert await remove_forgotten(journal) == 0
    row = (await claim(journal, locks)).row
    others = [_fill(folder_of(journal.folder, row).with_name(name)) for name in ("notes", "1", "1-2-3", "x1-2")]

    assert await remove_forgotten(journal) == 0
    assert all(other.exists() for other in others)
