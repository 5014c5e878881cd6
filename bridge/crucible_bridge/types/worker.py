"""What a worker says of itself."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.generated import ModelUsage

__all__ = ["WorkerLoad"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """What changes from one moment to the next of a WorkerInfo, under the same names."""

    running: int
    """Evaluations at work in this worker."""
    queued: int
    """Evaluations that wait in this worker."""
    calls: int
    """Calls and streams open in this worker."""
    draining: bool
    """Whether it is on its way out."""
    last_sequence: int
    """Sequence of the log's last event."""
    usage: tuple[ModelUsage, ...] = ()
    """What evaluations and calls took of each model since the worker started."""
