"""Looking at a folder of checkpoints: which are whole, and what the others lack.

A checkpoint is whole if it contains all that loading it reads (see `contents`), and its trainer has written the file
that it writes at the end: the marker of the user's naming, or Hugging Face's trainer_state.json. If there is no such
file, or anything has changed after it, a checkpoint is whole once nothing in it has changed for `SETTLE_SECONDS`.

The second rule is there for files that no other file names: trainers write the tokenizer after the weights, and a
checkpoint that is being deleted may have lost its tokenizer first.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from crucible_worker.planning.follow.contents import (
    FileSignature,
    FolderContents,
    Incomplete,
    examine,
    step_of_trainer_state,
)
from crucible_worker.planning.follow.names import (
    KEPT_RECORD,
    Candidate,
    InvalidNaming,
    Naming,
    candidates,
    natural_order,
)

__all__ = [
    "SETTLE_SECONDS",
    "CheckpointScanner",
    "FollowedCheckpoint",
    "InvalidNaming",
    "Naming",
    "ScanResult",
    "Unfinished",
    "look",
    "whole",
]

SETTLE_SECONDS = 1.0
"""How long no file of a checkpoint may have changed, by the clocks of this machine and of the file system."""
_CHANGES = "still changes"
_CREATION_NS = 50_000_000
"""How much later than an empty file its folder may have changed by the file's creation."""
_REMEMBER_SECONDS = 2.5
"""A folder that changed no later than this before it was looked into is not looked into again until it changes. File
systems may count in units of two seconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FollowedCheckpoint:
    """A whole checkpoint."""

    name: str
    """Of its folder; unique among those of a look, and without a slash."""
    path: Path
    """Its folder."""
    step: int
    """Of the training; unique among those of a look."""
    adapter: bool
    """Whether it is an adapter, which needs its model."""
    identity: str
    """Changes when a trainer deletes the checkpoint and writes another one of the same name."""
    files: tuple[str, ...]
    """Paths in its folder of the files that loading reads, sorted."""
    written_at: float
    """When the last of these files was written, in Unix seconds by the clock of the file system."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A folder with the name of a checkpoint that cannot be evaluated, or not yet."""

    name: str
    """Of the folder."""
    step: int | None
    """None if it is not known."""
    reason: str
    """What is missing, without a subject: `has no config.json`."""
    checkpoint: FollowedCheckpoint | None = None
    """The checkpoint, if it is whole, and another one of its step is preferred to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """What a folder contains. Every other folder in it has nothing to do with checkpoints."""

    whole: tuple[FollowedCheckpoint, ...]
    """By step."""
    unfinished: tuple[Unfinished, ...]
    """By name; `step-9` comes before `step-10`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _FolderState:
    """What was found in a folder."""

    verdict: FollowedCheckpoint | Unfinished | None
    folder: FileSignature
    """Of the folder."""
    lasting: bool = False
    """Whether the verdict holds as long as the folder and one file of weights have these stamps."""
    stamps: Mapping[str, FileSignature] = dataclasses.field(default_factory=dict[str, FileSignature])
    """Of its files, if it has all of them."""
    weights: tuple[str, FileSignature] | None = None
    """One file of a whole checkpoint: a trainer that writes into existing files does not change their folder."""


class CheckpointScanner:
    """Looks at one folder again and again. Of a checkpoint that has not changed, only two stamps are read.

    Not for several threads at once.
    """

    def __init__(self, directory: Path, naming: Naming) -> None:
        """Remember nothing yet; the directory need not exist."""
        self._directory = directory
        self._naming = naming
        self._seen: dict[str, _FolderState] = {}
        self._looked = ScanResult(whole=(), unfinished=())
        self._last: float | None = None

    def look(self) -> ScanResult:
        """What is in the folder now; nothing if it does not exist. Reads files: call it in a thread.

        Raises:
            OSError: the folder cannot be read.
        """
        now = time.time()
        seen: dict[str, _FolderState] = {}
        verdicts: list[tuple[bool, FollowedCheckpoint | Unfinished]] = []
        news = False
        for candidate in candidates(self._directory, self._naming):
            entry = self._see(candidate)
            seen[candidate.path] = entry
            news = news or entry is not self._seen.get(candidate.path)
            if entry.verdict is not None:
                verdicts.append((candidate.step is not None, entry.verdict))
        if news or len(seen) != len(self._seen):
            self._looked = _sorted(verdicts)
        self._seen, self._last = seen, now
        return self._looked

    def _see(self, candidate: Candidate) -> _FolderState:
        before = self._seen.get(candidate.path)
        folder = _stamp(candidate.path)
        if before is not None and before.lasting and folder == before.folder and _is_same(before.weights):
            return before
        try:
            return self._examine(candidate, folder, before)
        except Incomplete as error:
            verdict = Unfinished(name=_as_text(candidate.name), step=candidate.step, reason=error.reason)
            return _FolderState(verdict, folder, lasting=error.by_names and _is_old(folder))

    def _examine(self, candidate: Candidate, folder: FileSignature, before: _FolderState | None) -> _FolderState:
        if candidate.link:
            raise Incomplete("is a symbolic link; follow the folder that it leads into")
        path = Path(candidate.path)
        if (path / KEPT_RECORD).exists():
            return _FolderState(None, folder, lasting=_is_old(folder))
        step = candidate.step if candidate.step is not None else step_of_trainer_state(path)
        if step is None and not candidate.expected:
            return _FolderState(None, folder, lasting=_is_old(folder))
        if candidate.name != _as_text(candidate.name):
            raise Incomplete("has a name that is not UTF-8; rename it", by_names=True)
        contents = examine(path, self._naming.marker)
        if step is None:
            raise Incomplete("has no step: neither its name nor a trainer_state.json has one")
        found = _checkpoint(candidate, step, contents)
        settled = _had(before, found) or _is_finished(folder, contents) or self._has_settled(folder, contents, before)
        if not settled or _stamp(path) != folder:  # a deletion that began since then would not be seen in the stamps
            verdict = Unfinished(name=candidate.name, step=step, reason=_CHANGES)
            return _FolderState(verdict, folder, stamps=contents.files)
        weights = contents.weights[0]
        weights_stamp = (os.path.join(candidate.path, weights), contents.files[weights])
        return _FolderState(found, folder, lasting=_is_old(folder), stamps=contents.files, weights=weights_stamp)

    def _has_settled(self, folder: FileSignature, contents: FolderContents, before: _FolderState | None) -> bool:
        """Whether nothing has changed lately.

        A folder that has changed since the last look, and has only times from before it, comes from a clock that is
        behind, or was moved here. Its times say nothing, so it has to be the same at two looks.
        """
        if not _settled(folder, contents):
            return False
        if self._last is None or _newest(folder, contents) > self._last - SETTLE_SECONDS:
            return True
        return before is not None and (before.folder, before.stamps) == (folder, contents.files)


def look(directory: Path, naming: Naming) -> ScanResult:
    """What is in a folder now; nothing if it does not exist. Reads files: call it in a thread.

    Raises:
        OSError: the folder cannot be read.
    """
    return CheckpointScanner(directory, naming).look()


def whole(path: Path, naming: Naming) -> str:
    """Why the folder of a checkpoint is not whole; empty if it is. Reads files: call it in a thread."""
    folder = _stamp(path)
    try:
        contents = examine(path, naming.marker)
    except Incomplete as error:
        return error.reason
    settled = _is_finished(folder, contents) or _settled(folder, contents)
    return "" if settled and _stamp(path) == folder else _CHANGES


def _as_text(name: str) -> str:
    """A name of a folder, with an escape in place of each byte that is not UTF-8: no event could have that."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _checkpoint(candidate: Candidate, step: int, contents: FolderContents) -> FollowedCheckpoint:
    return FollowedCheckpoint(
        name=candidate.name,
        path=Path(candidate.path),
        step=step,
        adapter=contents.adapter,
        identity=contents.identity,
        files=tuple(sorted(contents.files)),
        written_at=contents.written_at,
    )


def _sorted(verdicts: Iterable[tuple[bool, FollowedCheckpoint | Unfinished]]) -> ScanResult:
    """One checkpoint for each step: of several, the one with the last name in natural order.

    Names with a step come after all others: `checkpoint-500` is preferred to a `final` of the same step.
    """
    unfinished: list[Unfinished] = []
    by_step: dict[int, FollowedCheckpoint] = {}
    for _, verdict in sorted(verdicts, key=lambda pair: (pair[0], natural_order(pair[1].name))):
        if isinstance(verdict, Unfinished):
            unfinished.append(verdict)
            continue
        other = by_step.get(verdict.step)
        if other is not None:
            reason = f"has the step {other.step} of {verdict.name!r}, which is preferred to it"
            unfinished.append(Unfinished(name=other.name, step=other.step, reason=reason, checkpoint=other))
        by_step[verdict.step] = verdict
    return ScanResult(
        whole=tuple(by_step[step] for step in sorted(by_step)),
        unfinished=tuple(sorted(unfinished, key=lambda one: natural_order(one.name))),
    )


def _had(before: _FolderState | None, found: FollowedCheckpoint) -> bool:
    """Whether these weights were whole before: a file that a trainer adds later does not make them less so."""
    verdict = before.verdict if before is not None else None
    return isinstance(verdict, FollowedCheckpoint) and verdict.identity == found.identity


def _is_finished(folder: FileSignature, contents: FolderContents) -> bool:
    """Whether its trainer has written the last file, and nothing was written, added or removed since."""
    if contents.last is None:
        return False
    if folder.mtime_ns > contents.last.mtime_ns + _CREATION_NS:
        return False
    return all(stamp.mtime_ns <= contents.last.mtime_ns for stamp in contents.files.values())


def _settled(folder: FileSignature, contents: FolderContents) -> bool:
    return all(_is_older(stamp, SETTLE_SECONDS) for stamp in (folder, *contents.files.values()))


def _newest(folder: FileSignature, contents: FolderContents) -> float:
    return max(contents.written_at, folder.mtime_ns / 1e9)


def _is_old(folder: FileSignature) -> bool:
    return _is_older(folder, _REMEMBER_SECONDS)


def _is_older(stamp: FileSignature, seconds: float) -> bool:
    """Whether it was written more than some seconds ago; or in the future, if the clock that wrote it is ahead."""
    return abs(time.time() - stamp.mtime_ns / 1e9) > seconds


def _is_same(weights: tuple[str, FileSignature] | None) -> bool:
    return weights is None or _stamp(weights[0]) == weights[1]


def _stamp(path: str | Path) -> FileSignature:
    """Of a file or folder; one that nothing equals, if it is gone or cannot be read."""
    try:
        return FileSignature.of(os.stat(path))
    except OSError:
        return FileSignature(-2, time.time_ns(), -2)
