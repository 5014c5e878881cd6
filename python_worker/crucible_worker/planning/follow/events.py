"""The events of checkpoints: measurements and metadata of each kind."""

from __future__ import annotations

import time

from crucible_bridge.events import Event, EventKind
from crucible_worker.journal.follows import CheckpointRow

__all__ = ["found", "released", "skipped"]


def found(run_id: str, checkpoint: CheckpointRow, latest: int, why: str) -> Event:
    """CHECKPOINT_FOUND; `latest` is the latest step of the directory, `why` the reason of a hold without links."""
    return _event(EventKind.CHECKPOINT_FOUND, run_id, checkpoint, latest, why, timed=True)


def skipped(run_id: str, checkpoint: CheckpointRow, latest: int, reason: str) -> Event:
    """CHECKPOINT_SKIPPED, with its reason."""
    return _event(EventKind.CHECKPOINT_SKIPPED, run_id, checkpoint, latest, reason, timed=False)


def released(run_id: str, checkpoint: CheckpointRow, latest: int, reason: str) -> Event:
    """CHECKPOINT_RELEASED: all of its evaluations have ended; the reason says if it was changed meanwhile."""
    return _event(EventKind.CHECKPOINT_RELEASED, run_id, checkpoint, latest, reason, timed=True)


def _event(kind: EventKind, run_id: str, checkpoint: CheckpointRow, latest: int, reason: str, *, timed: bool) -> Event:
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
