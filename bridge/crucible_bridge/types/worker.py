"""Information about a worker."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.generated import BackgroundTask, Fleet, ModelUsage

__all__ = ["WorkerLoad"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """The fields of a WorkerInfo that change at any moment, under the same names."""

    running: int
    """Evaluations that run in this worker."""
    queued: int
    """Evaluations that wait in this worker."""
    calls: int
    """Calls and streams open in this worker."""
    draining: bool
    """Whether it is stopping."""
    last_sequence: int
    """Sequence of the log's last event."""
    usage: tuple[ModelUsage, ...] = ()
    """The usage of each model by evaluations and calls since the worker started."""
    fleets: tuple[Fleet, ...] = ()
    """The replicas of models that have several."""
    failed_tasks: tuple[BackgroundTask, ...] = ()
    """The worker's own tasks that have failed since it started."""
    certificate_expires_unix_ns: int = 0
    """When its certificate for TLS expires; 0 without TLS."""
