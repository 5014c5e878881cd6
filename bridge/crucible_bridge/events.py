"""The closed catalogue of events: their kinds, their `:telemetry` names, and the one event type.

A span is a start followed by a stop or an exception. Names are fixed here: no consumer makes atoms from strings.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType

from crucible_bridge.types import Problem, SampleResult

__all__ = ["NEW_KINDS", "TELEMETRY_NAMES", "Event", "EventKind"]


class EventKind(enum.StrEnum):
    """What happened; the values are the wire's names without their prefix."""

    EVALUATION_START = "EVALUATION_START"
    EVALUATION_RESUME = "EVALUATION_RESUME"
    EVALUATION_INTERRUPT = "EVALUATION_INTERRUPT"
    EVALUATION_PROGRESS = "EVALUATION_PROGRESS"
    SAMPLE_COMPLETE = "SAMPLE_COMPLETE"
    EVALUATOR_START = "EVALUATOR_START"
    EVALUATOR_COMPLETE = "EVALUATOR_COMPLETE"
    EVALUATOR_EXCEPTION = "EVALUATOR_EXCEPTION"
    EVALUATION_COMPLETE = "EVALUATION_COMPLETE"
    EVALUATION_STOP = "EVALUATION_STOP"
    EVALUATION_EXCEPTION = "EVALUATION_EXCEPTION"
    METRICS_COMPUTED = "METRICS_COMPUTED"
    GRADING_COMPLETE = "GRADING_COMPLETE"
    RUN_BEST = "RUN_BEST"
    RUN_PLATEAU = "RUN_PLATEAU"
    CHECKPOINT_FOUND = "CHECKPOINT_FOUND"
    CHECKPOINT_SKIPPED = "CHECKPOINT_SKIPPED"
    CHECKPOINT_RELEASED = "CHECKPOINT_RELEASED"
    EVALUATION_PAUSED = "EVALUATION_PAUSED"
    EVALUATION_RESUMED = "EVALUATION_RESUMED"
    EVALUATION_CONCURRENCY = "EVALUATION_CONCURRENCY"


TELEMETRY_NAMES: Mapping[EventKind, tuple[str, str, str]] = MappingProxyType(
    {
        EventKind.EVALUATION_START: ("crucible_bridge", "evaluation", "start"),
        EventKind.EVALUATION_RESUME: ("crucible_bridge", "evaluation", "resume"),
        EventKind.EVALUATION_INTERRUPT: ("crucible_bridge", "evaluation", "interrupt"),
        EventKind.EVALUATION_PROGRESS: ("crucible_bridge", "evaluation", "progress"),
        EventKind.SAMPLE_COMPLETE: ("crucible_bridge", "evaluation", "sample"),
        EventKind.EVALUATOR_START: ("crucible_bridge", "evaluator", "start"),
        EventKind.EVALUATOR_COMPLETE: ("crucible_bridge", "evaluator", "stop"),
        EventKind.EVALUATOR_EXCEPTION: ("crucible_bridge", "evaluator", "exception"),
        # The only name from Crucible Kitchen: it proposes this event, and nothing else emits it.
        EventKind.EVALUATION_COMPLETE: ("crucible_kitchen", "evaluation", "complete"),
        EventKind.EVALUATION_STOP: ("crucible_bridge", "evaluation", "stop"),
        EventKind.EVALUATION_EXCEPTION: ("crucible_bridge", "evaluation", "exception"),
        EventKind.METRICS_COMPUTED: ("crucible_bridge", "metrics", "stop"),
        EventKind.GRADING_COMPLETE: ("crucible_bridge", "grading", "stop"),
        EventKind.RUN_BEST: ("crucible_bridge", "run", "best"),
        EventKind.RUN_PLATEAU: ("crucible_bridge", "run", "plateau"),
        EventKind.CHECKPOINT_FOUND: ("crucible_bridge", "checkpoint", "found"),
        EventKind.CHECKPOINT_SKIPPED: ("crucible_bridge", "checkpoint", "skipped"),
        EventKind.CHECKPOINT_RELEASED: ("crucible_bridge", "checkpoint", "released"),
        EventKind.EVALUATION_PAUSED: ("crucible_bridge", "evaluation", "paused"),
        EventKind.EVALUATION_RESUMED: ("crucible_bridge", "evaluation", "resumed"),
        EventKind.EVALUATION_CONCURRENCY: ("crucible_bridge", "evaluation", "concurrency"),
    }
)
"""`:telemetry` event names, element by element."""

NEW_KINDS = frozenset(
    {
        EventKind.EVALUATOR_START,
        EventKind.RUN_BEST,
        EventKind.RUN_PLATEAU,
        EventKind.CHECKPOINT_FOUND,
        EventKind.CHECKPOINT_SKIPPED,
        EventKind.CHECKPOINT_RELEASED,
        EventKind.EVALUATION_PAUSED,
        EventKind.EVALUATION_RESUMED,
        EventKind.EVALUATION_CONCURRENCY,
    }
)
"""Kinds that joined the catalogue later: sent only to callers that request new kinds, or one of these by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, as in the journal's record."""

    kind: EventKind
    """What happened."""
    sequence: int = 0
    """Position in the journal's log, from 1, gap-free; 0 until it is committed."""
    unix_time_ns: int = 0
    """When, Unix time in nanoseconds."""
    duration_ns: int = 0
    """How long what ended took, by a monotonic clock; 0 if nothing ended."""
    evaluation_id: str = ""
    """The evaluation, if there is one."""
    run_id: str = ""
    """The orchestrator's run."""
    step: int | None = None
    """The orchestrator's training step."""
    evaluator: str = ""
    """The evaluator's name, or its kind if it has none."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Finite numbers."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Plain strings, safe to write as JSON."""
    problem: Problem | None = None
    """What went wrong, in an exception."""
    correlation_id: str = ""
    """Copied from the request."""
    position: int = 0
    """Of SAMPLE_COMPLETE: the sample's place in the data set, from 0."""
    sample_result: SampleResult | None = None
    """Of SAMPLE_COMPLETE, if the stream was opened with records: the sample's result; None if it has run again since,
    or is no longer retained."""

    @property
    def telemetry_name(self) -> tuple[str, str, str]:
        """The `:telemetry` name of its kind."""
        return TELEMETRY_NAMES[self.kind]
