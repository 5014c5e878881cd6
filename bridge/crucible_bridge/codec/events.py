"""Events <-> v1, and <-> the journal's records.

A record is the event's message without its sequence, which the journal assigns. A page of records becomes a batch
without a Python object per event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from crucible_bridge.codec.fields import EnumPair, child, unicode_text
from crucible_bridge.codec.results import (
    problem_from_v1,
    problem_to_v1,
    sample_result_from_v1,
    sample_result_to_v1,
)
from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import SampleResult
from crucible_bridge.v1 import evaluation_pb2, events_pb2

__all__ = [
    "EventBatch",
    "batch_from_v1",
    "event_from_record",
    "event_from_v1",
    "event_kind_to_v1",
    "event_kinds_from_v1",
    "event_to_record",
    "event_to_v1",
    "events_from_records",
    "is_unknown",
    "page_to_v1",
    "with_sample_result",
]

_KIND = EnumPair(EventKind, events_pb2.EventKind, "EVENT_KIND_")

event_kind_to_v1 = _KIND.to_v1
event_kinds_from_v1 = _KIND.all_from_v1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """A message of a stream of events."""

    events: tuple[Event, ...]
    """In ascending order of sequence; empty if a filter removed all."""
    log_id: str
    """The log's identity; a new journal has a new one."""
    through_sequence: int
    """The last sequence examined, filtered ones included: resume after it."""


def event_to_v1(event: Event) -> events_pb2.Event:
    """Encode an event."""
    message = events_pb2.Event(
        kind=_KIND.to_v1(event.kind),
        sequence=event.sequence,
        unix_time_ns=event.unix_time_ns,
        duration_ns=event.duration_ns,
        evaluation_id=event.evaluation_id,
        run_id=event.run_id,
        step=event.step,
        evaluator=event.evaluator,
        problem=problem_to_v1(event.problem),
        correlation_id=event.correlation_id,
        position=event.position,
    )
    # Passing the map to the constructor takes twice as long, and every sample has an event.
    measurements, metadata = message.measurements, message.metadata
    for key, number in event.measurements.items():
        measurements[key] = number
    for key, value in event.metadata.items():
        metadata[key if key.isascii() else unicode_text(key)] = value if value.isascii() else unicode_text(value)
    return message


def event_from_v1(message: events_pb2.Event, field: str = "") -> Event:
    """Decode an event.

    Raises:
        InvalidField: its kind is not of this version's catalogue.
    """
    # Once per event of every stream: no path is built unless it is needed, and the loops below copy a map in half the
    # time that dict() takes.
    kind = _KIND.from_number.get(message.kind) or _KIND.from_v1(message.kind, child(field, "kind"))
    measurements, metadata = message.measurements, message.metadata
    return Event(
        kind=kind,
        sequence=message.sequence,
        unix_time_ns=message.unix_time_ns,
        duration_ns=message.duration_ns,
        evaluation_id=message.evaluation_id,
        run_id=message.run_id,
        step=message.step if message.HasField("step") else None,
        evaluator=message.evaluator,
        measurements={key: measurements[key] for key in measurements},
        metadata={key: metadata[key] for key in metadata},
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
        correlation_id=message.correlation_id,
        position=message.position,
        sample_result=_sample_result(message.sample_result) if message.sample_result else None,
    )


def _sample_result(encoded: bytes) -> SampleResult:
    try:
        return sample_result_from_v1(evaluation_pb2.SampleResult.FromString(encoded), "event.sample_result")
    except DecodeError as error:
        raise InvalidField("event.sample_result", "is no SampleResult") from error


def with_sample_result(record: bytes, find: Callable[[str, int, str, int, int], SampleResult | None]) -> bytes:
    """The journal's record of an event, with the result of its sample if the event is about one.

    Args:
        record: of the event.
        find: finds a sample's result by the sample's position, the evaluator's label, the repeat, and the run of
            the sample that it must be of.

    Raises:
        InternalError: the record is damaged.
    """
    try:
        event = events_pb2.Event.FromString(record)
    except DecodeError as error:
        raise InternalError("an event of the journal is damaged", reason=Reason.JOURNAL_DAMAGED) from error
    if event.kind != events_pb2.EVENT_KIND_SAMPLE_COMPLETE:
        return record
    repeat, attempt = int(event.metadata["repeat"]), int(event.metadata["attempt"])
    result = find(event.evaluation_id, event.position, event.evaluator, repeat, attempt)
    # Events of earlier releases have no position; the result found may then be another sample's.
    if result is None or result.sample_id != event.metadata["sample_id"]:
        return record
    event.sample_result = sample_result_to_v1(result).SerializeToString()
    return event.SerializeToString()


def is_unknown(message: events_pb2.Event) -> bool:
    """Whether an event's kind was added to the catalogue after this version."""
    return message.kind not in _KIND.from_number and message.kind != events_pb2.EVENT_KIND_UNSPECIFIED


def event_to_record(event: Event) -> bytes:
    """The journal's record of an event: all except its sequence. Equal events give equal bytes."""
    message = event_to_v1(event)
    message.ClearField("sequence")
    return message.SerializeToString(deterministic=True)


def event_from_record(sequence: int, record: bytes) -> Event:
    """The event of a journal's record, with its sequence.

    Raises:
        InternalError: the record is damaged.
        InvalidField: its kind is not of this version's catalogue.
    """
    return event_from_v1(page_to_v1([(sequence, record)], "", sequence).events[0], "event")


def events_from_records(records: Sequence[tuple[int, bytes]]) -> tuple[Event, ...]:
    """The events of a journal's records, with their sequences; kinds that this version does not know are left out.

    Raises:
        InternalError: a record is damaged.
    """
    return batch_from_v1(page_to_v1(records, "", 0)).events


def page_to_v1(records: Sequence[tuple[int, bytes]], log_id: str, through_sequence: int) -> events_pb2.EventBatch:
    """Encode committed events as a batch of a stream.

    Raises:
        InternalError: a record is damaged.
    """
    batch = events_pb2.EventBatch(log_id=log_id, through_sequence=through_sequence)
    add = batch.events.add
    sequence = 0
    try:
        for sequence, record in records:
            event = add()
            event.MergeFromString(record)
            event.sequence = sequence
    except DecodeError as error:
        raise InternalError(f"the journal's event {sequence} is damaged", reason=Reason.JOURNAL_DAMAGED) from error
    return batch


def batch_from_v1(message: events_pb2.EventBatch) -> EventBatch:
    """Decode a batch of a stream; events of kinds that this version does not know are left out.

    Raises:
        InvalidField: an event has no kind, or another of its fields cannot be decoded.
    """
    return EventBatch(
        events=tuple([event_from_v1(event, "event") for event in message.events if not is_unknown(event)]),
        log_id=message.log_id,
        through_sequence=message.through_sequence,
    )
