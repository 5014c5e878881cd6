"""Files of an evaluation, below the state directory: they are removed after the journal has removed the evaluation.

The folder of an evaluation, `kept/<number>-<created>`, is made by the code that writes files there. Only
`remove_forgotten` removes it, however the evaluation was removed, and whether or not a worker died in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from crucible_worker.journal import Journal
from crucible_worker.journal.queries import EvaluationRow, Reads

__all__ = ["folder_of", "remove_forgotten"]

_KEPT = "kept"
_NAME = re.compile(r"(\d{1,18})-(\d{1,20})")


def folder_of(state_dir: Path, row: EvaluationRow) -> Path:
    """The folder of an evaluation; a later evaluation of the same id has another folder."""
    return state_dir / _KEPT / f"{row.number}-{row.created_ns}"


async def remove_forgotten(journal: Journal) -> int:
    """Remove the folders of evaluations that the journal no longer has; returns how many."""
    # First the folders, then the journal: an evaluation is committed before its folder is made.
    folders = await asyncio.to_thread(_folders, journal.folder / _KEPT)
    if not folders:
        return 0
    known = await journal.read(_created, list(folders))
    forgotten = [path for number, paths in folders.items() for created, path in paths if known.get(number) != created]
    for path in forgotten:
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
    return len(forgotten)


def _folders(kept: Path) -> dict[int, list[tuple[int, Path]]]:
    found: dict[int, list[tuple[int, Path]]] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in kept.iterdir():
            if name := _NAME.fullmatch(path.name):
                found.setdefault(int(name[1]), []).append((int(name[2]), path))
    return found


def _created(source: Reads, numbers: Sequence[int]) -> Mapping[int, int]:
    """Creation times of those of the given evaluations that exist."""
    found: dict[int, int] = {}
    for number in numbers:
        row = source.execute("SELECT created_ns FROM evaluations WHERE number = ?", (number,)).fetchone()
        if row is not None:
            found[number] = row[0]
    return found
