"""StreamTelemetry: the events that this worker wrote, each sent once, over any number of streams.

Snakepit 0.13 gives a stream a deadline of five seconds. So a stream ends by itself a moment before: all sent events
have arrived then, and the next stream continues after them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from crucible_bridge.errors import InternalError
from crucible_worker.events.own_events import OwnEvents
from crucible_worker.journal import JournalUnavailable
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.rpc import Calls
from crucible_worker.rpc.methods import Context
from crucible_worker.snakepit.telemetry import NAMES, Steering, telemetry_event
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = ["MARGIN_SECONDS", "MARGIN_SHARE", "EventStream"]

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
