"""Files of tasks: temporary folders, and Inspect logs that outlast them, `.eval` files that results name.

The logs are in the evaluation's folder, of limited size.

The content is untrusted: a task may have written anything in place of its log, of any size.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_worker.util.files import make_private_folder, open_private

__all__ = ["MAX_LOGS_BYTES", "MAX_LOG_BYTES", "UNHELD_SECONDS", "LogKeeper", "hold", "remove_abandoned"]

# Temporary folders of tasks, each locked by a lock that the kernel releases when the worker dies.
#
# Only a later worker removes the folder of a worker that was killed: before it creates its own folder, it removes those
# that are no longer locked. The lock shows this even if workers do not see each other's processes, as in containers.

UNHELD_SECONDS = 60.0
"""An unlocked folder younger than this is left alone: another worker may be about to lock it."""

_PREFIX = "crucible-inspect-"


@contextlib.contextmanager
def hold() -> Iterator[Path]:
    """A new folder of this worker only; the caller decides what happens to it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # On a file system without locks nothing is removed, as no worker can lock anything there.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(held)


def remove_abandoned() -> None:
    """Remove the folders of this user's workers that have died; a folder that cannot be removed stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # No link is followed: every user can create one in a directory for temporary files.
        with contextlib.suppress(OSError):
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _is_old(os.fstat(found)):
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(found)


def _is_old(status: os.stat_result) -> bool:
    """Whether it is this user's own, and no worker is about to lock it."""
    own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
    return own and time.time() - status.st_mtime > UNHELD_SECONDS


MAX_LOG_BYTES = 256 * 1024 * 1024
"""Bytes of one log; a larger one is not kept."""
MAX_LOGS_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes of all logs in a state directory; a log beyond that is not kept."""

_SUFFIX = ".eval"
_MAX_LABEL_CHARS = 80
_DIGEST_CHARS = 12


class LogKeeper:
    """Keeps the log of one task.

    Args:
        folder: the folder for this evaluation and evaluator: `<state directory>/kept/<evaluation>/<evaluator>`.
        label: the task's name.
        sample_id: of the task's sample.
    """

    def __init__(self, folder: Path, label: str, sample_id: str) -> None:
        digest = hashlib.sha256(sample_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        plain = re.sub(r"[^\w.-]", "_", label, flags=re.ASCII)[:_MAX_LABEL_CHARS]
        # The log of a task that runs again in a later attempt replaces the earlier one.
        self._target = folder / f"{plain}-{digest}{_SUFFIX}"
        self._all = folder.parent.parent
        self.told: Mapping[str, str] = {}
        """Entries of a result about the log: `log`, its path in the state directory; or `log_not_kept`, and why."""

    def keep(self, logs: Path) -> None:
        """Keep the newest log of Inspect's folder, once its process has ended."""
        try:
            found = max(_logs(logs), key=lambda entry: entry.stat().st_mtime_ns, default=None)
            if found is None:
                self.told = {"log_not_kept": "the task ended before it wrote one"}
            elif why := self._refused(found):
                self.told = {"log_not_kept": why}
            else:
                self._take(found)
                self.told = {"log": str(self._target.relative_to(self._all.parent))}
        except OSError as error:
            self.told = {"log_not_kept": shorten(f"{type(error).__name__}: {error.strerror}", MAX_PROBLEM_BYTES)}

    def _refused(self, log: Path) -> str:
        """Why a log is not kept; empty if it is."""
        size = log.stat().st_size
        if size > MAX_LOG_BYTES:
            return f"has {size:,} bytes, at most {MAX_LOG_BYTES:,} are kept"
        if not zipfile.is_zipfile(log):
            return "was not written to its end"
        if size + _size_below(self._all) > MAX_LOGS_BYTES:
            return f"all logs together would have more than {MAX_LOGS_BYTES:,} bytes"
        return ""

    def _take(self, log: Path) -> None:
        make_private_folder(self._target.parent)
        whole = self._target.with_suffix(".part")
        try:
            # Copied, as the temporary directory may be on another file system; Inspect's file may have any mode.
            with os.fdopen(open_private(whole, os.O_WRONLY | os.O_TRUNC), "wb") as copy, log.open("rb") as made:
                shutil.copyfileobj(made, copy)
            os.replace(whole, self._target)
        finally:
            whole.unlink(missing_ok=True)


def _logs(folder: Path) -> Iterator[Path]:
    """Regular files with names of logs; no links."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.suffix == _SUFFIX and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _size_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # removed with its evaluation in the meantime
                total += os.lstat(os.path.join(place, name)).st_size
    return total
