"""What a worker says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["BackendInfo", "DrainReport", "WorkerInfo", "WorkerLoad"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """A kind of place where models live."""

    name: str
    """"embedded", "local", "openai", "tinker", "orchestrator"."""
    models: tuple[str, ...] = ()
    """Names of models it knows by itself; empty where a model is named by its path."""
    unavailable: str = ""
    """Empty, or why it cannot be used here."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker, as it stands."""

    worker_id: str
    """Made anew at each start."""
    version: str
    """Version of crucible-bridge."""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Versions of Python and the libraries that matter."""
    backends: tuple[BackendInfo, ...] = ()
    """Where models can live."""
    evaluators: tuple[str, ...] = ()
    """Kinds of evaluators; `list_evaluators` tells more."""
    datasets: tuple[str, ...] = ()
    """Built-in data sets."""
    code_images: tuple[str, ...] = ()
    """Folders of packages that `grade_code` can give to programs, by name."""
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Limits in force by name, units in their names: "default_concurrency", ..."""
    running: int = 0
    """Evaluations at work in this worker."""
    queued: int = 0
    """Evaluations that wait in this worker."""
    calls: int = 0
    """Calls and streams open in this worker."""
    draining: bool = False
    """Whether it is on its way out and refuses new calls."""
    started_unix_ns: int = 0
    """When it started, Unix time in nanoseconds."""
    log_id: str = ""
    """Identity of the journal's event log."""
    last_sequence: int = 0
    """Sequence of the log's last event."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """The answer to a drain."""

    interrupted: tuple[str, ...] = ()
    """Evaluations that this drain interrupts; StartEvaluation at another worker goes on with them."""
