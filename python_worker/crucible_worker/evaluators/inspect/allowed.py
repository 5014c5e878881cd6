"""The Inspect tasks that may be run: tasks are code, so only those that the operator names."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.util.files import LeadsOut, find_below

__all__ = [
    "MAX_NAME_CHARS",
    "InspectAllowlist",
    "TaskName",
    "missing_extra",
    "nothing_allowed",
    "parse_task",
]

_FILE = re.compile(r"(?P<file>[^@\0\n]+\.py)@(?P<task>[A-Za-z_]\w*)")
# Without dots: Inspect also searches files for a task that the package does not have.
_INSTALLED = re.compile(r"(?P<package>[\w-]+)/(?P<task>[\w-]+(/[\w-]+)*)")
MAX_NAME_CHARS = 16_384
"""Characters of a task's name; every path is shorter."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaskName:
    """The name of a task in a sample."""

    place: str
    """The file below a root, or the package."""
    task: str
    """Its name there."""
    in_file: bool
    """Whether `place` is a file."""

    @property
    def label(self) -> str:
        """The prefix of its keys, without a slash: the task's own name."""
        return self.task.replace("/", ".")


def parse_task(text: str) -> TaskName:
    """Read "PACKAGE/NAME" or "FILE.py@NAME".

    Raises:
        InvalidField: it is neither.
    """
    if len(text) > MAX_NAME_CHARS:
        raise InvalidField("input", f"has {len(text):,} characters, a task's name at most {MAX_NAME_CHARS:,}")
    if found := _FILE.fullmatch(text):
        return TaskName(place=found["file"], task=found["task"], in_file=True)
    if found := _INSTALLED.fullmatch(text):
        return TaskName(place=found["package"], task=found["task"], in_file=False)
    raise InvalidField("input", f'is {clipped(text)}, neither "PACKAGE/TASK" nor "FILE.py@TASK"')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InspectAllowlist:
    """The tasks that the operator allows; belongs to the event loop that uses it first."""

    roots: tuple[Path, ...] = ()
    """Folders with files of tasks."""
    packages: tuple[str, ...] = ()
    """Packages whose installed tasks may be run: "inspect_evals"."""
    network: bool = False
    """Whether tasks may fetch data sets from the hub; otherwise only its cache is read."""
    turns: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(1))
    """Limits how many tasks run at once."""

    def locate(self, name: TaskName) -> str:
        """The name by which Inspect finds a task.

        Raises:
            PermissionDenied: the package is not allowed (TASK_NOT_ALLOWED), or the path leads out of the roots
                (PATH_OUT_OF_ROOT).
            NotFound: no root has such a file (TASK_NOT_FOUND).
        """
        if name.in_file:
            return f"{_resolved(self.roots, name.place)}@{name.task}"
        if name.place not in self.packages:
            known = ", ".join(self.packages) or "none"
            message = f"tasks of {name.place!r} are not allowed by --inspect-package; allowed packages: {known}"
            raise PermissionDenied(message, reason=Reason.TASK_NOT_ALLOWED)
        return f"{name.place}/{name.task}"


def _resolved(roots: Sequence[Path], path: str) -> Path:
    try:
        found = find_below(roots, path, Path.is_file)
    except LeadsOut:
        message = f"the file {clipped(path)} leads out of the folders of --inspect-root"
        raise PermissionDenied(message, reason=Reason.PATH_OUT_OF_ROOT) from None
    if found is None:
        message = f"there is no file {clipped(path)} below a folder of --inspect-root"
        raise NotFound(message, reason=Reason.TASK_NOT_FOUND)
    return found


def missing_extra() -> str:
    """What to install if Inspect is missing; empty if it is installed."""
    if importlib.util.find_spec("inspect_ai") is not None:
        return ""
    return "Inspect is not installed: pip install 'crucible-bridge[inspect]'"


def nothing_allowed() -> FailedPrecondition:
    """The error of a worker that allows no task."""
    return FailedPrecondition(
        "this worker runs no Inspect task: tasks are code, and its operator allows none by --inspect-root or "
        "--inspect-package",
        reason=Reason.NO_INSPECT_TASKS,
    )
