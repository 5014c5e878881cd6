r"""Follows one run: finds checkpoints, holds them, notifies the plan, and releases them when their evaluations ended.

    whole -> held -> started -> released
      \-> skipped     \-> skipped: the plan's evaluations cannot be started

Each arrow is one transaction with its event. After a worker's death the next one reads how each checkpoint stands, and
continues there: links are made and removed in a way that may be repeated, and so is the notification of a step.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import FollowPolicy, parse_model
from crucible_worker.journal import OwnershipLost
from crucible_worker.journal.follows import CheckpointRow, CheckpointState, FollowRow, StepState
from crucible_worker.planning.follow.checkpoints import (
    CheckpointScanner,
    FollowedCheckpoint,
    Naming,
    ScanResult,
    Unfinished,
)
from crucible_worker.planning.follow.contents import NoBaseModel, model_of
from crucible_worker.planning.follow.holding import GivenUp, Vanished, changed, hold, left, recovered, release
from crucible_worker.planning.follow.keeping import Keeper
from crucible_worker.planning.follow.names import RELEASED_SUFFIX, folder_name, hold_name, unnamed
from crucible_worker.planning.follow_records import (
    FollowRecords,
    checkpoint_found,
    checkpoint_released,
    checkpoint_skipped,
)
from crucible_worker.planning.plans import TOUCH_SECONDS, EvaluationPlans
from crucible_worker.util.files import FILE_MODE, make_private_folder
from crucible_worker.util.tasks import to_its_end

__all__ = ["MAX_COPY_BYTES", "POLL_SECONDS", "Following"]

# Where checkpoints of a run are held, and the files that say which of them were released.


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


# Which of the checkpoints that are whole are evaluated.


def chosen(
    policy: FollowPolicy, every: int, new: Sequence[FollowedCheckpoint], *, before: int, latest: int | None
) -> Iterator[tuple[FollowedCheckpoint, str]]:
    """Each new checkpoint with the reason to skip it; an empty reason if it is evaluated.

    Args:
        policy: the policy.
        every: of the policy EVERY: checkpoints for each evaluated one.
        new: checkpoints that were not seen before, by step.
        before: how many were seen before.
        latest: the latest step that was taken before; None if none was.
    """
    newest = max((checkpoint.step for checkpoint in new), default=0)
    for index, checkpoint in enumerate(new, before):
        reason = ""
        if policy is FollowPolicy.EVERY and index % every:
            reason = f"the policy evaluates one of {every} checkpoints"
        elif policy is FollowPolicy.LATEST and checkpoint is not new[-1]:
            reason = f"the policy evaluates the latest checkpoint, and there is one of step {newest}"
        elif policy is FollowPolicy.LATEST and latest is not None and checkpoint.step < latest:
            reason = f"the policy evaluates the latest checkpoint, and one of step {latest} was found before"
        yield checkpoint, reason


POLL_SECONDS = 0.5
"""Seconds between two looks at the directory."""
LOOK_AGAIN_SECONDS = 2.0
"""Seconds after which all checkpoints are looked at again although their directory has not changed."""
ROUNDED_SECONDS = 2.0
"""By how much a file system may round the time of a change."""
MAX_COPY_BYTES = 32 * 1024**3
"""Largest checkpoint that is copied if it cannot be held by links."""
_LATEST_NS = (1 << 63) - 1
"""In the year 2262: the journal has no later time, and files of a broken clock do."""

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Following:
    """The following of one run by this worker, which has the run's lock."""

    def __init__(
        self, row: FollowRow, records: FollowRecords, plans: EvaluationPlans, keeper: Keeper | None = None
    ) -> None:
        """Follow as the row says; nothing is done before `run`."""
        self._row, self._records, self._plans, self._keeper = row, records, plans, keeper
        self._naming = Naming(row.name_pattern or None, row.marker or None)
        self._lookout = CheckpointScanner(Path(row.directory), self._naming)
        self._changes = _Changes(Path(row.directory))
        self._markers = Markers(records.state_dir, row)
        self._folder = self._markers.hold_folder
        self._known: dict[tuple[str, str], CheckpointRow] = {}
        self._recovered: dict[str, FollowedCheckpoint] = {}
        self._copies: dict[tuple[str, str], asyncio.Task[str]] = {}
        self._earlier: list[CheckpointRow] = []
        """Released checkpoints that may be among the best, and that the trainer has not deleted."""
        self._stopping = asyncio.Event()
        self._gone = threading.Event()
        self._used = time.monotonic()
        self._said = ""
        self._missed: list[str] = []
        self.unfinished: Sequence[Unfinished] = ()
        """Checkpoints that are not whole, as of the last look."""
        self.active = time.monotonic()
        """When something ran or became whole the last time, by `time.monotonic`."""
        self.looked = False
        """Whether it has looked at the directory."""
        self.refused_before: Sequence[str] = ()
        """`refused` when it began."""

    async def run(self) -> None:
        """Follow until the run is no longer followed and all its checkpoints are released, or until `stop`.

        Raises:
            OwnershipLost: another worker may follow it: nothing was changed since.
        """
        rows = await self._persistently(lambda: self._records.checkpoints(self._row.number))
        self._known = {(row.name, row.identity): row for row in rows or ()}
        self.refused_before = self.refused
        await self._persistently(self._take_over)
        try:
            while not self._stopping.is_set():
                if await self._persistently(self._pass):
                    return
                await self._pause()
        finally:
            self._gone.set()
            await asyncio.gather(*self._copies.values(), return_exceptions=True)

    def stop(self) -> None:
        """End `run` soon: before its next step. Evaluations that have begun are not affected."""
        self._stopping.set()

    @property
    def directory(self) -> str:
        """The directory that is followed."""
        return self._row.directory

    @property
    def refused(self) -> Sequence[str]:
        """Names of checkpoints that are skipped for good: their evaluations could not be started."""
        if self._row.policy == FollowPolicy.LATEST:  # that one also skips held ones
            return []
        return [row.name for row in self._known.values() if row.state is CheckpointState.SKIPPED and row.model]

    @property
    def missed(self) -> Sequence[str]:
        """Names of checkpoints that policy and plan want, and that were skipped or given up: also before."""
        return list(dict.fromkeys((*self.refused, *self._missed)))

    @property
    def found_none(self) -> bool:
        """Whether no folder has the name of a checkpoint, as of the last look."""
        return not self._known and not self.unfinished

    async def unnamed(self) -> list[str]:
        """Names of folders that have a model, but not the name of a checkpoint."""
        return await asyncio.to_thread(unnamed, Path(self._row.directory), self._naming)

    @property
    def _open(self) -> list[CheckpointRow]:
        return sorted((row for row in self._known.values() if row.state.is_open), key=lambda row: row.step)

    async def _persistently(self, step: Callable[[], Awaitable[_T]]) -> _T | None:
        """Take a step again and again while journal or worker are unable to; None once the worker ends."""
        while not self._stopping.is_set():
            try:
                return await step()
            except BridgeError as error:
                if not error.retryable or isinstance(error, OwnershipLost):
                    raise
                self._say("follow_waits", str(error))
            await self._pause()
        return None

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._stopping.wait()

    def _say(self, event: str, reason: str) -> None:
        """Log once, until the reason is another one."""
        if reason != self._said:
            self._said = reason
            _log.warning(event, run_id=self._row.run_id, directory=self._row.directory, reason=reason)

    async def _take_over(self) -> None:
        """Resume what another worker may have left: also what it held, and was killed before it recorded that."""
        try:
            held = await asyncio.to_thread(recovered, self._folder)
            names = await asyncio.to_thread(left, self._folder)
        except OSError as error:
            self._say("held_checkpoints_not_looked_for", str(error))
            held, names = (), ()
        self._recovered = {each.name: each for each in held if (each.name, each.identity) not in self._known}
        wanted = {row.name for row in self._open} | self._recovered.keys()
        for name in names:
            if name not in wanted:
                await self._let_go(name)
        for row in self._open:
            if row.state is CheckpointState.STARTED:
                await self._resume(row, (await self._records.steps(self._row.plan_id, [row.step]))[row.step])
        if self._keeper is not None:  # it may be given for the first time, or keep more than before
            self._earlier = await asyncio.to_thread(_still_there, tuple(self._known.values()))

    async def _pass(self) -> bool:
        """Look, and do what is to be done; whether the following has ended."""
        now = await self._records.find(self._row.number)
        if now is None:
            return True
        if now.ended:
            for name in tuple(self._recovered):
                await self._let_go(name)
                del self._recovered[name]
            for row in self._held_rows():
                await self._skip(row, "the run is no longer followed")
        else:
            await self._find()
        await self._start()
        await self._settle()
        if self._open or self._earlier:
            self.active = time.monotonic()
        elif now.ended:
            await asyncio.to_thread(self._markers.tidy)
            return True
        await self._use_plan()
        return False

    async def _use_plan(self) -> None:
        if time.monotonic() - self._used > TOUCH_SECONDS:
            self._used = time.monotonic()
            await self._records.use_plan(self._row.plan_id)

    async def _find(self) -> None:
        """Find checkpoints that are whole since the last look."""
        if not (self.unfinished or self._recovered or await asyncio.to_thread(self._changes.there_may_be)):
            return
        try:
            looked = await asyncio.to_thread(self._look)
        except OSError as error:
            self._say("checkpoints_not_looked_for", str(error))
            return
        # The one that was evaluated stays that of its step, whichever name is preferred: it may be written again.
        evaluated = {row.name for row in self._known.values() if row.state is not CheckpointState.SKIPPED}
        again = [one for one in looked.unfinished if one.checkpoint is not None and one.name in evaluated]
        self.unfinished, self.looked = [one for one in looked.unfinished if one not in again], True
        # One of the name of an evaluated one waits: a name is a folder of held files.
        read = {row.name for row in self._open} | self._recovered.keys()
        found = (*looked.whole, *(one.checkpoint for one in again if one.checkpoint is not None))
        whole = [each for each in found if each.name not in read]
        new = [each for each in whole if (each.name, each.identity) not in self._known]
        new = sorted((*new, *self._recovered.values()), key=lambda each: each.step)
        if not new:
            return
        self.active = time.monotonic()
        latest = max(each.step for each in (*looked.whole, *new))
        taken = [row.step for row in self._known.values() if row.state is not CheckpointState.SKIPPED]
        policy = FollowPolicy(self._row.policy)
        before, newest = len(self._known), max(taken, default=None)
        for checkpoint, reason in chosen(policy, self._row.every, new, before=before, latest=newest):
            if self._stopping.is_set():
                return
            unwanted = reason or await self._why_not_due(checkpoint)
            hindered = "" if unwanted else self._why_not(checkpoint)
            await self._take(checkpoint, unwanted or hindered, latest, wanted=not unwanted)

    def _look(self) -> ScanResult:
        """What is in the directory. One that a link has replaced is not below its model root any more.

        Raises:
            OSError: it cannot be read, or leads elsewhere.
        """
        directory = self._row.directory
        if (real := os.path.realpath(directory)) != directory:
            raise OSError(f"{directory} has become a link to {real}; follow that folder")
        return self._lookout.look()

    async def _why_not_due(self, checkpoint: FollowedCheckpoint) -> str:
        """Why the plan does not want a checkpoint; empty if it does."""
        if await self._plans.is_due(self._row.plan_id, checkpoint.step):
            return ""
        return f"nothing of the plan {self._row.plan_id} is due at step {checkpoint.step}"

    def _why_not(self, checkpoint: FollowedCheckpoint) -> str:
        """Why a checkpoint that policy and plan want is not evaluated; empty if it is."""
        for row in self._known.values():
            if row.step == checkpoint.step and row.state is not CheckpointState.SKIPPED and row.name != checkpoint.name:
                return f"another checkpoint of step {row.step} is or was evaluated, {row.name}"
        return ""

    async def _take(self, checkpoint: FollowedCheckpoint, reason: str, latest: int, *, wanted: bool) -> None:
        """Hold a checkpoint that is going to be evaluated, or skip it if there is a reason; `wanted` by the policy."""
        row = CheckpointRow(
            name=checkpoint.name,
            identity=checkpoint.identity,
            step=checkpoint.step,
            state=CheckpointState.SKIPPED,
            source=str(checkpoint.path),
            path=str(checkpoint.path),
            model="",
            held="nothing",
            held_identity="",
            written_ns=min(int(checkpoint.written_at * 1e9), _LATEST_NS),
        )
        why = ""
        if reason:
            if checkpoint.name in self._recovered:
                await self._let_go(checkpoint.name)
        else:
            await self._records.confirm(self._row.number)
            try:
                row, why = await to_its_end(self._hold, checkpoint, row)
            except GivenUp:
                return  # the worker ends, and the next one holds it
            except Vanished as error:
                reason = f"{checkpoint.name} {error.reason}"
            except NoBaseModel as error:
                reason = str(error)
                await self._let_go(row.name)
        if reason:
            event = checkpoint_skipped(self._row.run_id, row, latest, reason)
            if wanted:
                self._missed.append(row.name)
        else:
            event = checkpoint_found(self._row.run_id, row, latest, why)
        await self._note(row, event)
        self._recovered.pop(checkpoint.name, None)

    def _hold(self, checkpoint: FollowedCheckpoint, row: CheckpointRow) -> tuple[CheckpointRow, str]:
        """Hold a checkpoint; the row of it as held, and why it is not held by links."""
        held = hold(
            checkpoint,
            self._folder,
            max_copy_bytes=MAX_COPY_BYTES,
            naming=self._naming,
            given_up=self._stopping.is_set,
        )
        model = model_of(held.path, adapter=checkpoint.adapter, base_model=self._row.base_model)
        self._markers.remove(row)
        held_row = dataclasses.replace(
            row,
            state=CheckpointState.HELD,
            path=str(held.path),
            model=model,
            held=held.how,
            held_identity=held.identity,
        )
        return held_row, held.why

    def _held_rows(self) -> list[CheckpointRow]:
        return [row for row in self._open if row.state is CheckpointState.HELD]

    async def _start(self) -> None:
        """Notify the plan of checkpoints that are held, as far as the policy lets them begin now."""
        held = self._held_rows()
        if self._row.policy == FollowPolicy.LATEST:
            for row in held[:-1]:
                latest = f"there is one of step {held[-1].step}"
                await self._skip(row, f"the policy evaluates the latest checkpoint, and {latest}")
            held = held[-1:] if len(self._open) == len(held[-1:]) else []
        for row in held:
            if self._stopping.is_set():
                return
            if await self._notify(row):
                await self._note(dataclasses.replace(row, state=CheckpointState.STARTED))

    async def _notify(self, row: CheckpointRow) -> bool:
        """Start or resume the evaluations of a checkpoint; False if they must wait, or are refused."""
        try:
            model = parse_model(row.model)
            content = row.identity if self._supersedes(row) else ""
            await self._plans.notify(self._row.plan_id, row.step, model, last=False, content=content, again=False)
        except BridgeError as error:
            if error.retryable or error.reason == Reason.QUEUE_FULL:
                return False
            reason = shorten(f"{error}{_cure(error)}", MAX_PROBLEM_BYTES)
            self._missed.append(row.name)
            if row.state is CheckpointState.HELD:
                await self._skip(row, reason)
            else:
                await self._give_up(row, reason)
            return False
        return True

    def _supersedes(self, row: CheckpointRow) -> bool:
        """Whether another checkpoint of the name and step was evaluated before: the trainer has written it again."""
        return any(
            (other.name, other.step, other.state) == (row.name, row.step, CheckpointState.RELEASED)
            for other in self._known.values()
            if other.identity != row.identity
        )

    async def _give_up(self, row: CheckpointRow, reason: str) -> None:
        """End evaluations that can no longer be resumed: the held files are gone."""
        for state in (await self._records.steps(self._row.plan_id, [row.step]))[row.step]:
            if await self._records.is_left(state):
                await self._records.cancel(state, reason)

    async def _settle(self) -> None:
        """Release the checkpoints whose evaluations have ended; resume those that have lost their owner."""
        for row in tuple(self._earlier):
            states = await self._records.steps(self._row.plan_id, [row.step])
            if self._copy_of(row, states[row.step]) is not None:
                self._earlier.remove(row)
        started = [row for row in self._open if row.state is CheckpointState.STARTED]
        if not started:
            return
        states = await self._records.steps(self._row.plan_id, [row.step for row in started])
        for row in started:
            if all(state.state is None or state.state.terminal for state in states[row.step]):
                copy = "" if self._keeper is None else self._copy_of(row, states[row.step])
                if copy is not None:
                    await self._release(row, copy)
            else:
                await self._resume(row, states[row.step])

    def _copy_of(self, row: CheckpointRow, states: Sequence[StepState]) -> str | None:
        """The folder of the copy of a checkpoint whose evaluations have ended; empty if there is none.

        None while it is made: that takes time, in which other checkpoints are found.
        """
        key = row.name, row.identity
        if key not in self._copies:
            self._copies[key] = asyncio.create_task(self._keep(row, states), name=f"keep-{row.name}")
        return self._copies.pop(key).result() if self._copies[key].done() else None

    async def _keep(self, row: CheckpointRow, states: Sequence[StepState]) -> str:
        assert self._keeper is not None
        await self._records.confirm(self._row.number)
        return await self._keeper.keep(row, states, self._gone.is_set)

    async def _release(self, row: CheckpointRow, kept: str) -> None:
        """Let a checkpoint go: its evaluations have ended."""
        touched = await asyncio.to_thread(_touched, row)
        await self._let_go_row(row)
        await asyncio.to_thread(self._markers.write, row)
        ended = dataclasses.replace(row, state=CheckpointState.RELEASED)
        reason = f"{row.name} {touched}" if touched else ""
        # A better one may have taken its place since it was copied.
        kept = kept if kept and await asyncio.to_thread(os.path.isdir, kept) else ""
        await self._note(ended, checkpoint_released(self._row.run_id, ended, self._latest, reason, kept))

    async def _resume(self, row: CheckpointRow, states: Sequence[StepState]) -> None:
        for state in states:
            if await self._records.is_left(state):
                await self._notify(row)
                return

    @property
    def _latest(self) -> int:
        return max((row.step for row in self._known.values()), default=0)

    async def _skip(self, row: CheckpointRow, reason: str) -> None:
        """Do not evaluate a checkpoint that is held."""
        await self._let_go_row(row)
        skipped = dataclasses.replace(row, state=CheckpointState.SKIPPED)
        await self._note(skipped, checkpoint_skipped(self._row.run_id, skipped, self._latest, reason))

    async def _let_go_row(self, row: CheckpointRow) -> None:
        """Let a checkpoint go where it is held: another folder, if the state directory was moved meanwhile."""
        await self._let_go(row.name, self._folder if row.held == "nothing" else Path(row.path).parent)

    async def _let_go(self, name: str, folder: Path | None = None) -> None:
        await self._records.confirm(self._row.number)
        try:
            await to_its_end(release, self._folder if folder is None else folder, name)
        except OSError as error:
            # It is released all the same: what is left in the folder costs space alone.
            self._say("held_checkpoint_not_removed", str(error))

    async def _note(self, row: CheckpointRow, *told: Event) -> None:
        if await self._records.record(self._row.number, row, *told):
            self._known[row.name, row.identity] = row


def _cure(error: BridgeError) -> str:
    """What helps if the model of an adapter is not there; its configuration may name a folder as if it were a hub's."""
    if error.reason != Reason.NOT_CACHED or not error.field.startswith("model"):
        return ""
    return "; --hub-network fetches it, and --base-model local:PATH (base_model of FollowRun) names a folder"


def _still_there(rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    """Of released checkpoints those that are in the trainer's own folders as they were, by step."""
    released = (dataclasses.replace(row, path=row.source) for row in rows if row.state is CheckpointState.RELEASED)
    there = (row for row in released if os.path.isdir(row.path) and not changed(Path(row.path), row.identity))
    return sorted(there, key=lambda row: row.step)


def _touched(row: CheckpointRow) -> str:
    """How a checkpoint was changed while it was read; empty if it was not."""
    path = Path(row.path)
    if row.held != "nothing" and not path.exists():
        return ""  # a worker was killed after it had removed what was held
    return changed(path, row.held_identity)


class _Changes:
    """Whether a directory may have other checkpoints than at the last look: one `stat` for thousands of old ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, int, int] | None = None
        self._looked = 0.0

    def there_may_be(self) -> bool:
        """Whether a look is due; a caller that gets True must look."""
        try:
            status = self._directory.stat()
        except OSError:
            now = None
        else:
            now = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if abs(time.time_ns() - status.st_mtime_ns) < ROUNDED_SECONDS * 1e9:
                now = None  # another change might get the same time
        # What is in its folders may change without it: a name without a step counts by its trainer_state.json.
        late = time.monotonic() - self._looked >= LOOK_AGAIN_SECONDS
        if now is not None and now == self._seen and not late:
            return False
        self._seen, self._looked = now, time.monotonic()
        return True
