"""Events of this worker in Snakepit's form: its names and measurements, with our data as metadata.

Snakepit drops an event with an unknown name or measurement, so each of our events has the nearest of its names. Our
name is in `operation`, our measurements are in `metrics`. Frequent events, those of single samples and of progress, are
only in `watch_evaluation` and `subscribe`.
"""

from __future__ import annotations

import fnmatch
import json
import random
from collections.abc import Mapping, Sequence

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.events import Event, EventKind
from crucible_bridge.problems import shorten
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = ["MAX_TEXT_BYTES", "NAMES", "Steering", "telemetry_event"]

NAMES: Mapping[EventKind, tuple[str, ...]] = {
    EventKind.EVALUATION_START: ("tool", "execution", "start"),
    EventKind.EVALUATION_RESUME: ("tool", "execution", "start"),
    EventKind.EVALUATION_INTERRUPT: ("tool", "execution", "stop"),
    EventKind.EVALUATION_STOP: ("tool", "execution", "stop"),
    EventKind.EVALUATION_EXCEPTION: ("tool", "execution", "exception"),
    EventKind.EVALUATOR_START: ("python", "call", "start"),
    EventKind.EVALUATOR_COMPLETE: ("python", "call", "stop"),
    EventKind.EVALUATOR_EXCEPTION: ("python", "call", "exception"),
    EventKind.EVALUATION_COMPLETE: ("python", "call", "stop"),
    EventKind.METRICS_COMPUTED: ("python", "call", "stop"),
    EventKind.GRADING_COMPLETE: ("python", "call", "stop"),
}
"""Names that Snakepit knows, by the kinds that it receives: an attempt at an evaluation is a start and its end,
and so is an evaluator."""

MAX_TEXT_BYTES = 4096
"""Longest text of the metadata, except the metrics, which are JSON and are never truncated."""

_TAKEN = {"worker_id": "crucible_worker_id"}
"""Our keys that have another meaning in Snakepit."""


class Steering:
    """The events that Elixir wants; valid for all later streams."""

    def __init__(self) -> None:
        self._enabled = True
        self._rate = 1.0
        self._sampled: Sequence[str] = ()
        self._allow: Sequence[str] = ()
        self._deny: Sequence[str] = ()

    def apply(self, control: pb.TelemetryControl) -> None:
        """Apply a message of Elixir; unknown ones are ignored."""
        which = control.WhichOneof("control")
        if which == "toggle":
            self._enabled = control.toggle.enabled
        elif which == "sampling":
            self._rate = control.sampling.sampling_rate
            self._sampled = tuple(control.sampling.event_patterns)
        elif which == "filter":
            self._allow, self._deny = tuple(control.filter.allow), tuple(control.filter.deny)

    def wants(self, event: pb.TelemetryEvent) -> bool:
        """Whether to send an event; if only a share is wanted, events are chosen at random."""
        name = ".".join(event.event_parts)
        if not self._enabled or _fits(name, self._deny) or (self._allow and not _fits(name, self._allow)):
            return False
        sampled = not self._sampled or _fits(name, self._sampled)
        return not sampled or random.random() < self._rate


def telemetry_event(sequence: int, record: bytes, log_id: str) -> pb.TelemetryEvent:
    """An event of the journal in Snakepit's form.

    Raises:
        InternalError: the record is damaged.
    """
    event = event_from_record(sequence, record)
    message = pb.TelemetryEvent(
        event_parts=NAMES[event.kind],
        timestamp_ns=event.unix_time_ns,
        correlation_id=event.correlation_id,
        metadata=_metadata(event, log_id),
    )
    message.measurements["count"].int_value = 1
    if event.duration_ns:
        message.measurements["duration"].int_value = event.duration_ns
        message.measurements["duration_ms"].float_value = event.duration_ns / 1e6
    return message


def _metadata(event: Event, log_id: str) -> dict[str, str]:
    said = {_TAKEN.get(key, key): shorten(value, MAX_TEXT_BYTES) for key, value in event.metadata.items()}
    said |= {
        "operation": ".".join(event.telemetry_name),
        "library": "crucible_bridge",
        "metrics": json.dumps(dict(event.measurements), allow_nan=False),
        "sequence": str(event.sequence),
        "log_id": log_id,
    }
    if event.evaluation_id:
        said |= {"tool": "evaluate", "evaluation_id": event.evaluation_id, "run_id": event.run_id}
    if event.step is not None:
        said["step"] = str(event.step)
    if event.evaluator:
        said["evaluator"] = event.evaluator
    if "call" in event.metadata:
        said["function"] = event.metadata["call"]
    if event.problem is not None:
        said |= {
            "error_type": event.problem.reason,
            "error_message": shorten(event.problem.message, MAX_TEXT_BYTES),
        }
    return said


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
