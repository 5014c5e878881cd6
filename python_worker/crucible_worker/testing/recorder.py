"""Records the events of a worker, and waits for the one that a test is about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from crucible_bridge.client import Bridge
from crucible_bridge.events import Event, EventKind

__all__ = ["EventRecorder", "record_events"]


class EventRecorder:
    """Every event since it began, in order. Made by `record_events`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """What has arrived."""
        self._arrived = asyncio.Condition()
        self._ended: BaseException | None = None

    def of(self, kind: EventKind, evaluation_id: str | None = None) -> list[Event]:
        """The events of one kind so far; of one evaluation, if its id is given."""
        return [event for event in self.events if event.kind is kind and evaluation_id in (None, event.evaluation_id)]

    async def wait_for(self, wanted: Callable[[Event], bool], *, seconds: float = 30.0) -> Event:
        """Wait for the first event, recorded or future, that is wanted.

        Raises:
            TimeoutError: none came in time.
            BridgeError: the stream ended.
        """
        async with asyncio.timeout(seconds), self._arrived:
            seen = 0
            while True:
                for event in self.events[seen:]:
                    if wanted(event):
                        return event
                seen = len(self.events)
                if self._ended is not None:
                    raise self._ended
                await self._arrived.wait()

    async def _record(self, bridge: Bridge) -> None:
        try:
            async with bridge.telemetry.subscribe() as stream:
                async for event in stream:
                    async with self._arrived:
                        self.events.append(event)
                        self._arrived.notify_all()
        except Exception as error:  # `wait_for` raises it
            self._ended = error
            async with self._arrived:
                self._arrived.notify_all()


@contextlib.asynccontextmanager
async def record_events(bridge: Bridge) -> AsyncIterator[EventRecorder]:
    """Record every event of a worker's log, from the first one, until the block ends."""
    recorder = EventRecorder()
    task = asyncio.create_task(recorder._record(bridge))
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.wait([task])
