"""Every limit of a worker, by name. `GetInfo` tells those in force; `--limit NAME=VALUE` sets one."""

from __future__ import annotations

import dataclasses

__all__ = ["KEEP_FOREVER", "MIN_MESSAGE_BYTES", "WorkerLimits"]

MIN_MESSAGE_BYTES = 128 * 1024
"""The least that `max_message_bytes` may be: ListEvaluators alone answers with half of it."""

KEEP_FOREVER = (
    "max_events_retained",
    "evaluation_retention_seconds",
    "interrupted_retention_seconds",
    "plan_retention_seconds",
)
"""Limits of what the journal retains; 0 removes nothing."""

_DAY = 24 * 60 * 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Bounds that a worker keeps; units in their names. All are above zero, except those of retention."""

    max_message_bytes: int = 64 * 1024 * 1024
    """A message, either way; above, the call is refused."""
    max_running_evaluations: int = 4
    """Evaluations at work at once; more are queued."""
    max_queued_evaluations: int = 64
    """Evaluations that wait; more are refused."""
    default_concurrency: int = 32
    """Samples of an evaluation, or items of a model call, in flight at once, where the request does not say."""
    max_concurrency: int = 1024
    """What a request may ask for at most."""
    default_sample_timeout_seconds: float = 300.0
    """One sample's or item's time, its retries included, where the request does not say."""
    default_stall_timeout_seconds: float = 600.0
    """Time without any progress after which an evaluation fails, where the request does not say."""
    max_events_retained: int = 1_000_000
    """Events in the journal; the oldest go first, never those of an unfinished evaluation. 0 keeps all."""
    evaluation_retention_seconds: float = 30.0 * _DAY
    """How long an evaluation that has ended is kept, with its samples; 0 is forever."""
    interrupted_retention_seconds: float = 7.0 * _DAY
    """How long an interrupted evaluation waits to be resumed before it is cancelled; 0 is forever."""
    plan_retention_seconds: float = 30.0 * _DAY
    """How long an unused plan is kept; longer while its run has evaluations; 0 is forever."""
    retention_grace_seconds: float = 1.0 * _DAY
    """Nothing is removed because of its age before it was too old for this long, in time that workers ran."""
    max_grading_items: int = 4096
    """Items of a grading call; more are refused."""
    max_model_items: int = 4_096
    """Items of a ModelService call; more are refused."""
    max_samples_per_item: int = 1_000
    """Continuations of one item of `Sample`; an item that asks for more is refused."""
    max_inspect_tasks: int = 4
    """Tasks of Inspect at work at once, each in a process of its own; more wait, which is part of a sample's time."""
    max_orchestrator_window: int = 1_024
    """Questions open at once on one stream of EvaluateWithOrchestratorModel, whatever the orchestrator wants."""
    max_compared_samples: int = 2_000_000
    """Results of samples, of all evaluations of one comparison together; more are refused."""
    max_calls_per_service: int = 256
    """Unary calls open at once in one service; more are refused. Health checks are not counted."""
    max_streams: int = 256
    """Streams open at once in one service."""
    max_sequences_per_call: int = 1_000_000
    """Sequences of one call for metrics over tokens; more are refused."""
    drain_seconds: float = 5.0
    """From SIGTERM to the end of the process, whatever runs."""

    def without_retention(self) -> WorkerLimits:
        """The same, but what is in the journal stays there: for a process that runs what one command asked for."""
        return dataclasses.replace(self, **dict.fromkeys(KEEP_FOREVER, 0))
