"""Where checkpoints of a run are held, and the files that say which of them were released."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import structlog

from crucible_worker.journal.follows import CheckpointRow, FollowRow
from crucible_worker.planning.follow.places import RELEASED_SUFFIX, folder_name, hold_name
from crucible_worker.util.private_files import FILE_MODE, make_private_folder

__all__ = ["Markers"]

_log = structlog.get_logger(__name__)


class Markers:
    """The folders of one run. Every method touches files."""

    def __init__(self, state_dir: Path, row: FollowRow) -> None:
        self._row = row
        name = folder_name(row.run_id)
        self.hold_folder = Path(row.hold_folder) / hold_name(row.run_id, state_dir)
        """Where its checkpoints are held: two runs, or workers of two journals, may follow one directory."""
        self._released = state_dir / "released" / name

    def write(self, checkpoint: CheckpointRow) -> None:
        """Say that a checkpoint was released: in the state directory, and in the checkpoint if the run wants that.

        A file that cannot be written is a warning: the event says the same.
        """
        content = json.dumps({"run_id": self._row.run_id, "name": checkpoint.name, "step": checkpoint.step}) + "\n"
        try:
            make_private_folder(self._released)
            _put(self._released / f"{checkpoint.name}{RELEASED_SUFFIX}", content, FILE_MODE)
        except OSError as error:
            _log.warning("released_not_marked", checkpoint=checkpoint.name, reason=str(error))
        if self._row.mark:
            try:
                _put(self._folder_of(checkpoint) / RELEASED_SUFFIX, content, 0o666)  # for the trainer, by its umask
            except FileNotFoundError:
                return  # the trainer has deleted it meanwhile
            except OSError as error:
                _log.warning("released_not_marked", checkpoint=checkpoint.name, reason=str(error))

    def remove(self, checkpoint: CheckpointRow) -> None:
        """Remove the files of an older checkpoint of this name."""
        with contextlib.suppress(OSError):
            (self._released / f"{checkpoint.name}{RELEASED_SUFFIX}").unlink(missing_ok=True)
        if self._row.mark:
            with contextlib.suppress(OSError):
                (self._folder_of(checkpoint) / RELEASED_SUFFIX).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the folders of held checkpoints, unless something is in them."""
        for folder in (self.hold_folder, self.hold_folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folder_of(self, checkpoint: CheckpointRow) -> Path:
        """The checkpoint's own folder.

        Raises:
            OSError: a link has taken its place, and leads anywhere.
        """
        folder = Path(checkpoint.source)
        if folder.resolve() != folder or not folder.is_relative_to(self._row.directory):
            raise OSError(f"{folder} leads out of the followed folder")
        return folder


def _put(path: Path, content: str, mode: int) -> None:
    """Write a file that appears whole."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # a link of this name would be written through
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w") as file:
        file.write(content)
    os.replace(part, path)
