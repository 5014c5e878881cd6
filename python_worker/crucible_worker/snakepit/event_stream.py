"""StreamTelemetry: the events that this worker wrote, each sent once, over as many streams as Elixir opens.

Snakepit 0.13 gives a stream a deadline of five seconds. So a stream ends by itself a moment before: what was sent then
has arrived, and the next one goes on after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from crucible_worker.interceptors import Calls
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.journal import JournalUnavailable
from crucible_worker.runs.written import Written
from crucible_worker.snakepit.telemetry import NAMES, Steering, telemetry_event
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = ["MARGIN_SECONDS", "MARGIN_SHARE", "EventStream"]

MARGIN_SECONDS = 0.25
"""How long before its deadline a stream ends."""
MARGIN_SHARE = 0.5
"""At most this share of its time is given up for the margin, where a deadline is short."""

_KINDS = tuple(NAMES)
_log = structlog.get_logger(__name__)


class EventStream:
    """The worker's side of StreamTelemetry; of one event loop."""

    def __init__(self, written: Written, calls: Calls) -> None:
        """Send what `written` holds; a drain ends streams among these calls."""
        self._written = written
        self._calls = calls
        self._steering = Steering()
        self._turn = asyncio.Lock()
        self._newest = 0
        self._waiting: asyncio.Timeout | None = None

    async def serve(self, controls: AsyncIterator[pb.TelemetryControl], context: Context) -> None:
        """Serve one stream until its deadline is near, a newer one is there, or the worker drains."""
        remaining = context.time_remaining()
        end = None
        if remaining is not None:
            end = asyncio.get_running_loop().time() + remaining - min(MARGIN_SECONDS, remaining * MARGIN_SHARE)
        # Elixir sends its first word only once it has heard that there is a stream.
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
        """Send events; none is begun after the end, as nobody could tell whether it arrived."""
        while (records := await self._next(number, end)) is not None:
            for sequence, record in records:
                if self._over(number, end):
                    return
                event = telemetry_event(sequence, record, self._written.log_id)
                if self._steering.wants(event):
                    await context.write(event)
                self._written.take(sequence)

    async def _next(self, number: int, end: float | None) -> list[tuple[int, bytes]] | None:
        """What is to be sent next; None at the stream's end."""
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
        while True:
            try:
                return await self._written.page(_KINDS)
            except JournalUnavailable as error:
                _log.warning("events_not_read", reason=str(error))
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
                self._steering.heed(control)
