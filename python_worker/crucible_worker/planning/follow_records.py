"""Followed runs in the journal: who follows, what has happened to each checkpoint, and the events of that.

A worker that follows a run owns it, as it owns evaluations: with a journal in a file, the kernel releases its lock when
the process dies, and another worker takes it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState
from crucible_worker.history import lifecycle
from crucible_worker.journal import Journal
from crucible_worker.journal.follows import (
    CheckpointRow,
    FollowRow,
    StepState,
    begin,
    checkpoint_rows,
    end,
    find_follow_of,
    open_follows,
    record,
    step_states,
)
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.plans import find_plan, run_of, touch
from crucible_worker.journal.store import Owners

__all__ = ["FollowRecords", "checkpoint_found", "checkpoint_released", "checkpoint_skipped"]

_LIVE = (EvaluationState.QUEUED, EvaluationState.RUNNING)


class FollowRecords:
    """The followed runs of a journal. Made by `Evaluations.follow_records`; close it with `close`."""

    def __init__(self, journal: Journal, evaluation_locks: Owners) -> None:
        self._journal, self._evaluation_locks = journal, evaluation_locks
        self._locks = journal.owners("follows")
        self.state_dir = journal.folder
        """The folder with the journal."""

    async def begin(self, wanted: FollowRow) -> tuple[FollowRow, bool]:
        """Follow a run, or resume; returns the row, and whether it was followed already.

        Raises:
            AlreadyExists: it is followed in another way (OTHER_FOLLOW).
        """
        return await self._journal.submit(
            lambda now: begin(now, wanted, lambda number: self._locks.is_free(number, now))
        )

    async def end(self, run_id: str) -> bool:
        """End the following of a run; returns whether it was followed until now.

        Raises:
            NotFound: it was never followed (UNKNOWN_FOLLOW).
        """
        return await self._journal.submit(lambda transaction: end(transaction, run_id))

    async def run_of_plan(self, plan_id: str) -> str | None:
        """The run of a plan; None if there is no such plan."""
        return await self._journal.read(run_of, plan_id)

    async def open(self) -> Sequence[FollowRow]:
        """The followed runs of which something is still to be done."""
        return await self._journal.read(open_follows)

    async def find(self, number: int) -> FollowRow | None:
        """A followed run; None if it was removed."""
        return await self._journal.read(find_follow_of, number)

    async def acquire(self, number: int) -> bool:
        """Become the one that follows a run; False if another worker does."""
        return await self._locks.take(number)

    def release(self, number: int) -> None:
        """Let another worker follow it."""
        self._locks.release(number)

    async def checkpoints(self, number: int) -> Sequence[CheckpointRow]:
        """The checkpoints of a followed run, by step."""
        return await self._journal.read(checkpoint_rows, number)

    async def record(self, number: int, row: CheckpointRow, *events: Event) -> bool:
        """Record how a checkpoint stands, with its events; False if the followed run was removed.

        Raises:
            OwnershipLost: another worker may follow it.
        """
        return await self._of(number).submit(lambda transaction: record(transaction, number, row, events))

    async def confirm(self, number: int) -> None:
        """Make sure that this worker still follows a run, before it changes files.

        Raises:
            OwnershipLost: another worker may follow it.
        """
        await self._locks.confirm(number)

    async def use_plan(self, plan_id: str) -> None:
        """Record that a plan is used, so that retention leaves it while nothing is found.

        Raises:
            NotFound: it is no longer retained.
        """
        row = await self._journal.read(find_plan, plan_id)
        fingerprint = "" if row is None else row.fingerprint
        await self._journal.submit(lambda transaction: touch(transaction, plan_id, fingerprint))

    async def steps(self, plan_id: str, steps: Sequence[int]) -> Mapping[int, Sequence[StepState]]:
        """The evaluations of each of these steps, with their states."""
        return await self._journal.read(step_states, plan_id, steps)

    async def is_left(self, state: StepState) -> bool:
        """Whether an evaluation that has not ended has no owner: the notification of its step resumes it."""
        if state.state is None or state.state.terminal:
            return False
        return state.state not in _LIVE or await self._evaluation_locks.looks_free(state.number)

    async def cancel(self, state: StepState, reason: str) -> None:
        """End an evaluation that can no longer be resumed."""
        await self._journal.submit(
            lambda transaction: lifecycle.cancel(transaction, self._evaluation_locks, state.number, reason)
        )

    def _of(self, number: int) -> FencedJournal:
        return FencedJournal(self._journal, self._locks, number)

    def close(self) -> None:
        """Drop every lock."""
        self._locks.close()


# The events of checkpoints: measurements and metadata of each kind.


def checkpoint_found(run_id: str, checkpoint: CheckpointRow, latest: int, why: str) -> Event:
    """CHECKPOINT_FOUND; `latest` is the latest step of the directory, `why` the reason of a hold without links."""
    return _checkpoint_event(EventKind.CHECKPOINT_FOUND, run_id, checkpoint, latest, why, timed=True)


def checkpoint_skipped(run_id: str, checkpoint: CheckpointRow, latest: int, reason: str) -> Event:
    """CHECKPOINT_SKIPPED, with its reason."""
    return _checkpoint_event(EventKind.CHECKPOINT_SKIPPED, run_id, checkpoint, latest, reason, timed=False)


def checkpoint_released(run_id: str, checkpoint: CheckpointRow, latest: int, reason: str, kept: str) -> Event:
    """CHECKPOINT_RELEASED: all of its evaluations have ended; the reason says if it was changed meanwhile.

    `kept` is the folder of its copy, or empty.
    """
    event = _checkpoint_event(EventKind.CHECKPOINT_RELEASED, run_id, checkpoint, latest, reason, timed=True)
    return dataclasses.replace(event, metadata={**event.metadata, "kept": kept}) if kept else event


def _checkpoint_event(
    kind: EventKind, run_id: str, checkpoint: CheckpointRow, latest: int, reason: str, *, timed: bool
) -> Event:
    now = time.time_ns()
    measurements = {"lag_steps": float(max(0, latest - checkpoint.step))}
    if timed:
        # The file system's clock may be ahead of this machine's.
        measurements["lag_seconds"] = max(0, now - checkpoint.written_ns) / 1e9
    metadata = {"name": checkpoint.name, "path": checkpoint.path, "held": checkpoint.held}
    return Event(
        kind=kind,
        unix_time_ns=now,
        run_id=run_id,
        step=checkpoint.step,
        measurements=measurements,
        metadata=metadata | ({"reason": reason} if reason else {}),
    )
