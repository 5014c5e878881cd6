"""Copies of the best checkpoints of a followed run: they stay when the trainer deletes its own.

runs/mine/checkpoint-320/model.safetensors
runs/mine/best/checkpoint-320/model.safetensors   a copy, or a clone that shares its blocks until one is written
runs/mine/best/checkpoint-320/SHA256SUMS          `sha256sum --check SHA256SUMS` verifies it
runs/mine/best/checkpoint-320/.kept               {"metric": "nll", "value": 0.4, "evaluation_id": ...}

Never a hard link: a trainer that writes into an existing file would change it. A copy is made under a temporary name in
a folder of the run's own. It gets its name when its digests are those of the source, and its fingerprint is that of the
model that was evaluated. So a folder with a record is whole, whenever this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import structlog

from crucible_bridge.errors import NotFound
from crucible_bridge.types import Evaluation, EvaluationState, Goal, ModelRef, ScoredCount, parse_model
from crucible_worker.journal.follows import CheckpointRow, StepState
from crucible_worker.planning.best_file import with_folder
from crucible_worker.planning.follow.contents import Incomplete, examine
from crucible_worker.planning.follow.holding import GivenUp
from crucible_worker.planning.follow.names import KEPT_RECORD
from crucible_worker.reports.ranking import enough_scored, scored_by_key
from crucible_worker.util.fingerprints import model_part, same
from crucible_worker.util.tasks import to_its_end

__all__ = ["KEEP_FOLDER", "KeepRule", "Keeper", "copy_of"]

KEEP_FOLDER = "best"
"""Name of the folder with the copies, in the followed directory."""
SUMS = "SHA256SUMS"
"""Digests of the files of a copy, as `sha256sum` reads them."""
_CLONE = 0x40049409
"""FICLONE of Linux: the new file shares the blocks of the other one. Source: ioctl_ficlone(2)."""
_BLOCK_BYTES = 8 << 20
_IDENTITY_SHOWN = 8
_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """Which checkpoints have copies, and where."""

    folder: Path
    """Where the copies are."""
    count: int
    """How many, at most."""
    max_bytes: int
    """Of all copies together."""
    metric: str
    """Full key of the metric by which they are ranked."""
    goal: Goal
    """Which values of it are better."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint with a value of the metric; its fields are in the record of its copy."""

    plan_id: str
    evaluation_id: str
    name: str
    """Of the trainer's folder."""
    identity: str
    """Of the trainer's files."""
    step: int
    metric: str
    goal: str
    value: float
    n: int | None
    """Of the value; None if it is not known."""
    n_scored: int | None
    rules_version: int
    bytes: int
    """Of its files together."""

    @property
    def scored(self) -> ScoredCount | None:
        """What the value is made of."""
        return None if self.n is None or self.n_scored is None else ScoredCount(n=self.n, n_scored=self.n_scored)


class NotCopied(Exception):
    """There is no copy; the text says why, without a subject."""


class Keeper:
    """Keeps the best checkpoints of one followed run; only the worker that has the run's lock uses it.

    Args:
        rule: what to keep.
        plan_id: the plan by which the run is evaluated. Copies of other plans, or by other metrics, are left alone.
        evaluation_of: reads an evaluation.
        fingerprint_of: the fingerprint of a model's files as they are now; None if that is not known.
        say: writes a line for people.
    """

    def __init__(
        self,
        rule: KeepRule,
        plan_id: str,
        evaluation_of: Callable[[str], Awaitable[Evaluation]],
        fingerprint_of: Callable[[ModelRef], Awaitable[str | None]],
        say: Callable[[str], None],
    ) -> None:
        self._rule, self._plan_id = rule, plan_id
        self._evaluation_of, self._fingerprint_of, self._say = evaluation_of, fingerprint_of, say
        own = hashlib.sha256(plan_id.encode()).hexdigest()[:12]
        self._temporary = rule.folder / f".{own}.partial"
        """Has what is not complete. Each plan has its own, so that none removes what another one is making."""
        self._turn = asyncio.Lock()

    async def keep(self, row: CheckpointRow, states: Sequence[StepState], given_up: Callable[[], bool]) -> str:
        """Copy a checkpoint whose evaluations have ended, if it is one of the best; returns the folder of the copy.

        The path is empty if there is no copy. What a killed process has left is removed.

        Args:
            row: the checkpoint, which is still held.
            states: its evaluations.
            given_up: queried between the blocks of a copy.

        Raises:
            GivenUp: `given_up` returned True.
        """
        try:
            async with self._turn:
                return await self._keep(row, states, given_up)
        except (NotCopied, Incomplete) as error:
            self._say(f"{row.name}: not kept: it {error}")
        except OSError as error:
            _log.warning("checkpoint_not_kept", checkpoint=row.name, reason=str(error))
        return ""

    async def _measured(self, states: Sequence[StepState]) -> Evaluation | None:
        """The evaluation with the metric; None if none has completed with it."""
        for state in states:
            if state.state is not EvaluationState.COMPLETED:
                continue
            with contextlib.suppress(NotFound):  # it was deleted meanwhile
                found = await self._evaluation_of(state.evaluation_id)
                if self._rule.metric in found.metrics.values:
                    return found
        return None

    def _measurement(self, row: CheckpointRow, evaluation: Evaluation, size: int) -> Kept:
        scored = scored_by_key(evaluation.results).get(self._rule.metric)
        return Kept(
            plan_id=self._plan_id,
            evaluation_id=evaluation.evaluation_id,
            name=row.name,
            identity=row.identity,
            step=row.step,
            metric=self._rule.metric,
            goal=self._rule.goal.value,
            value=evaluation.metrics.values[self._rule.metric],
            n=None if scored is None else scored.n,
            n_scored=None if scored is None else scored.n_scored,
            rules_version=evaluation.rules_version,
            bytes=size,
        )

    async def _keep(self, row: CheckpointRow, states: Sequence[StepState], given_up: Callable[[], bool]) -> str:
        evaluation = await self._measured(states)
        if evaluation is None:
            return ""
        before = await asyncio.to_thread(self._read)
        there = next((path for path, one in before.items() if one.evaluation_id == evaluation.evaluation_id), None)
        if there is not None:  # a process may have been killed before it removed what that one has replaced
            staying, leaving = self._choice(list(before.values()), None)
            await self._remove({path: leaving[one] for path, one in before.items() if one in leaving})
            return str(there) if before[there] in staying else ""
        found = self._measurement(row, evaluation, await asyncio.to_thread(_size, Path(row.path)))
        staying, given_way = self._choice([*before.values(), found], found)
        if found not in staying:
            return ""
        leaving = {path: given_way[one] for path, one in before.items() if one in given_way}
        if sum(one.bytes for one in before.values()) + found.bytes > self._rule.max_bytes:
            await self._remove(leaving)
            leaving = {}
        try:
            copy = await to_its_end(self._copy, found, Path(row.path), given_up)
            now = await self._fingerprint_of(with_folder(parse_model(row.model), str(copy)))
            measured = model_part(evaluation.model_fingerprint)
            if now is not None and measured and same(now, measured) is False:
                raise NotCopied("is no longer what was evaluated: its files were written again")
            path = await to_its_end(self._finish, found, copy)
        finally:
            await to_its_end(functools.partial(shutil.rmtree, self._temporary, ignore_errors=True))
        await self._remove(leaving)
        return str(path)

    async def _remove(self, leaving: Mapping[Path, str]) -> None:
        """Remove copies, and say why, each with its reason."""
        for path, why in leaving.items():
            await to_its_end(self._delete, path)
            self._say(f"{path.name}: no longer kept: {why}")

    def _choice(self, every: Sequence[Kept], new: Kept | None) -> tuple[Sequence[Kept], Mapping[Kept, str]]:
        """The best ones that fit, and why each of the others leaves.

        Of equal values the earlier step is better, and values of too few scores are none.

        Raises:
            NotCopied: the new one has too few scores, or is one of the best and does not fit.
        """
        sign = 1 if self._rule.goal is Goal.HIGHER else -1
        latest = max(one.rules_version for one in every)
        enough = enough_scored([one.scored for one in every])
        ranked = [one for one, is_enough in zip(every, enough) if is_enough and one.rules_version == latest]
        best = sorted(ranked, key=lambda one: (-sign * one.value, one.step))[: self._rule.count]
        if new is not None and new not in ranked:
            raise NotCopied("has a value of too few scores")
        count = "there is a better one" if len(best) == 1 else f"there are {len(best):,} better ones"
        leaving = dict.fromkeys((one for one in ranked if one not in best), count)
        # Those of other rules, or of few scores, stay while there is room: no number says that they are worse.
        others = [one for one in every if one not in ranked]
        free = self._rule.count - len(best)
        best += others[:free]
        leaving |= dict.fromkeys(others[free:], "its value is by earlier rules, or of too few scores")
        staying: list[Kept] = []
        for one in best:
            if sum(each.bytes for each in staying) + one.bytes <= self._rule.max_bytes:
                staying.append(one)
            elif one is new:
                raise NotCopied(
                    f"has {one.bytes:,} bytes, and at most {self._rule.max_bytes:,} are kept with those that are better"
                )
            else:
                leaving[one] = f"its {one.bytes:,} bytes do not fit into {self._rule.max_bytes:,} with better ones"
        return staying, leaving

    def _read(self) -> Mapping[Path, Kept]:
        """The copies that are there, by folder; what is not complete is removed."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        own = (self._plan_id, self._rule.metric, self._rule.goal.value)
        every = kept_in(self._rule.folder).items()
        return {path: one for path, one in every if (one.plan_id, one.metric, one.goal) == own}

    def _copy(self, found: Kept, source: Path, given_up: Callable[[], bool]) -> Path:
        """A copy under a temporary name, whose digests are those of the source.

        Raises:
            NotCopied: it has changed, or would fill the disk.
            OSError: it cannot be copied.
            Incomplete: it is no longer whole.
            GivenUp: `given_up` returned True.
        """
        contents = examine(source)
        self._temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self._temporary / found.name
        copy.mkdir()
        digests: dict[str, str] = {}
        for name in contents.files:
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = _copied(source / name, target, found.bytes, given_up)
            if digest != _digest(target, given_up):
                raise NotCopied(f"has a {name} whose copy has other content")
            digests[name] = digest
        if examine(source).identity != contents.identity:
            raise NotCopied("was written again while it was copied")
        with (copy / SUMS).open("wb") as file:
            file.writelines(
                f"{digest}  ".encode() + os.fsencode(name) + b"\n" for name, digest in sorted(digests.items())
            )
        return copy

    def _finish(self, found: Kept, copy: Path) -> Path:
        """Give a copy its record and its name; all of it is on the disk before."""
        with (copy / KEPT_RECORD).open("w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(found), file)
        for path in (*copy.rglob("*"), copy):
            _to_disk(path)
        path = self._rule.folder / found.name
        if os.path.lexists(path):  # the trainer has written the checkpoint again, or it is another one's
            path = path.with_name(f"{found.name}-{found.identity[:_IDENTITY_SHOWN]}")
        copy.rename(path)
        _to_disk(self._rule.folder)
        return path

    def _delete(self, path: Path) -> None:
        """Remove a copy: it loses its name first."""
        self._temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.rename(self._temporary / path.name)
        shutil.rmtree(self._temporary)


def kept_in(folder: Path) -> Mapping[Path, Kept]:
    """The copies in a folder; none if it cannot be read."""
    found: dict[Path, Kept] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            found[path] = Kept(**json.loads((path / KEPT_RECORD).read_bytes()))
    return found


def copy_of(evaluation_id: str, directory: Path) -> Path | None:
    """The copy of what an evaluation has measured, in a directory that was followed; None if there is none."""
    kept = kept_in(directory / KEEP_FOLDER)
    return next((path for path, one in kept.items() if one.evaluation_id == evaluation_id), None)


def _size(source: Path) -> int:
    return sum(stamp.size for stamp in examine(source).files.values())


def _copied(source: Path, target: Path, reserve: int, given_up: Callable[[], bool]) -> str:
    """Copy or clone a file, with its mode; returns the digest of the source.

    Args:
        source: the file.
        target: the copy, which is made.
        reserve: bytes that have to be free on the disk after it is copied.
        given_up: queried between its blocks.

    Raises:
        GivenUp: `given_up` returned True.
        NotCopied: the disk would be too full for the trainer's own files.
        OSError: it cannot be copied.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as read, os.fdopen(os.open(target, flags, 0o600), "wb") as written:
        os.fchmod(written.fileno(), os.fstat(read.fileno()).st_mode & 0o777)
        try:
            fcntl.ioctl(written.fileno(), _CLONE, read.fileno())
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
        else:
            return _digest(source, given_up)
        if shutil.disk_usage(target.parent).free < os.fstat(read.fileno()).st_size + reserve:
            raise NotCopied("would fill the disk, which needs room for the trainer's next checkpoint")
        digest = hashlib.sha256()
        for block in _blocks(read, given_up):
            digest.update(block)
            written.write(block)
        return digest.hexdigest()


def _digest(path: Path, given_up: Callable[[], bool]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in _blocks(file, given_up):
            digest.update(block)
    return digest.hexdigest()


def _blocks(file: BinaryIO, given_up: Callable[[], bool]) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        if given_up():
            raise GivenUp
        yield block


def _to_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
