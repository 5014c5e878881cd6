"""StreamTelemetry: the events that this worker wrote, each sent once, in Snakepit's form, over any number of streams.

Snakepit 0.13 gives a stream a deadline of five seconds. So a stream ends by itself a moment before: all sent events
have arrived then, and the next stream continues after them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence

import structlog

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import InternalError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.problems import shorten
from crucible_worker.events.streams import OwnEvents
from crucible_worker.journal import JournalUnavailable
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.rpc import Calls
from crucible_worker.rpc.calls import Context
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = ["MARGIN_SECONDS", "MARGIN_SHARE", "MAX_TEXT_BYTES", "NAMES", "EventStream", "Steering", "telemetry_event"]

# Snakepit's form of an event: its names and measurements, with our data as metadata.
#
# Snakepit drops an event with an unknown name or measurement, so each of our events has the nearest of its names. Our
# name is in `operation`, our measurements are in `metrics`. Frequent events, those of single samples and of progress,
# are only in `watch_evaluation` and `subscribe`.

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


MARGIN_SECONDS = 0.25
"""How long before its deadline a stream ends."""
MARGIN_SHARE = 0.5
"""The margin is at most this share of a stream's time, for short deadlines."""

_KINDS = tuple(NAMES)
_log = structlog.get_logger(__name__)


class EventStream:
    """The worker's side of StreamTelemetry; of one event loop."""

    def __init__(self, written: OwnEvents, calls: Calls) -> None:
        """Send the events of `written`; a drain ends streams that are in `calls`."""
        self._written = written
        self._calls = calls
        self._steering = Steering()
        self._turn = asyncio.Lock()
        self._newest = 0
        self._waiting: asyncio.Timeout | None = None

    async def serve(self, controls: AsyncIterator[pb.TelemetryControl], context: Context) -> None:
        """Serve one stream until its deadline is near, a newer one exists, or the worker drains."""
        remaining = context.time_remaining()
        end = None
        if remaining is not None:
            end = asyncio.get_running_loop().time() + remaining - min(MARGIN_SECONDS, remaining * MARGIN_SHARE)
        # Elixir sends its first message only after it knows that there is a stream.
        await context.send_initial_metadata(())
        self._newest += 1
        number = self._newest
        self._interrupt()
        heeding = asyncio.create_task(self._heed(controls), name="telemetry-controls")
        try:
            async with self._turn:
                await self._send(number, end, context)
        finally:
            heeding.cancel()
            await asyncio.wait((heeding,))

    async def _send(self, number: int, end: float | None, context: Context) -> None:
        """Send events; none is started after the end, as its arrival could not be known."""
        while (records := await self._next(number, end)) is not None:
            for sequence, record in records:
                if self._over(number, end):
                    return
                event = self._event(sequence, record)
                if event is not None and self._steering.wants(event):
                    await context.write(event)
                self._written.take(sequence)

    def _event(self, sequence: int, record: bytes) -> pb.TelemetryEvent | None:
        """A record as a message; None if it is damaged: later ones are sent all the same."""
        try:
            return telemetry_event(sequence, record, self._written.log_id)
        except InternalError as error:
            _log.error("event_not_told", sequence=sequence, reason=error.reason)
            return None

    async def _next(self, number: int, end: float | None) -> list[tuple[int, bytes]] | None:
        """The next events to send; None at the stream's end."""
        if self._over(number, end):
            return None
        timer = asyncio.timeout_at(end)
        try:
            async with timer:
                self._waiting = timer
                self._calls.watch(timer)
                return await self._page()
        except TimeoutError:
            if not timer.expired():
                raise
            return None
        finally:
            self._calls.forget(timer)
            self._waiting = None

    async def _page(self) -> list[tuple[int, bytes]]:
        outages = LogOnce(_log, "events_not_read")
        while True:
            try:
                return await self._written.page(_KINDS)
            except JournalUnavailable as error:
                outages.failed(error)
                await asyncio.sleep(error.retry_after or 1.0)

    def _over(self, number: int, end: float | None) -> bool:
        return number != self._newest or (end is not None and asyncio.get_running_loop().time() >= end)

    def _interrupt(self) -> None:
        """End the wait of an older stream."""
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def _heed(self, controls: AsyncIterator[pb.TelemetryControl]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async for control in controls:
                self._steering.apply(control)
