"""What moves in the worker, as server-sent events: one subscription of the worker's events for all open pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["MAX_WAITING", "Changes"]

PAUSE_SECONDS = 0.5
"""Changes of this time travel together."""
KEEP_ALIVE_SECONDS = 15.0
"""A page that hears nothing for longer would take the connection for dead."""
RETRY_SECONDS = 2.0
"""Between attempts to subscribe again at a worker that does not answer."""
MAX_WAITING = 1_000
"""Evaluations whose change a slow page has not taken yet; with more of them, one message stands for everything."""

_log = structlog.get_logger(__name__)


class Changes:
    """Tells open pages which evaluations have moved."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._pages: set[_Page] = set()
        self._ended = False
        self._hears: list[Callable[[str | None], None]] = []

    def also(self, hear: Callable[[str | None], None]) -> None:
        """Call a function with the id of each evaluation that moves; with None if each of them may have moved."""
        self._hears.append(hear)

    def end(self) -> None:
        """End every stream, so that no page is cut off in the middle of one."""
        self._ended = True
        for page in self._pages:
            page.news.set()

    async def run(self) -> None:
        """Read the worker's events until cancelled; a worker that has gone is waited for."""
        while True:
            try:
                info = await self._bridge.worker.get_info()
                async with self._bridge.telemetry.subscribe(info.last_sequence, info.log_id) as stream:
                    self._all_moved()  # events before this subscription were missed
                    async for event in stream:
                        self._moved(event)
            except BridgeError as error:
                _log.warning("worker_not_reached", problem=str(error), next_attempt_seconds=RETRY_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)

    def _all_moved(self) -> None:
        for hear in self._hears:
            hear(None)
        for page in self._pages:
            page.add({"id": "", "all": True})

    def _moved(self, event: Event) -> None:
        if not event.evaluation_id:
            return
        for hear in self._hears:
            hear(event.evaluation_id)
        change = {"id": event.evaluation_id, "run": event.run_id}
        for page in self._pages:
            page.add(change)

    async def stream(self) -> AsyncIterator[str]:
        """Events for one page, as text in the format of server-sent events, until the page leaves."""
        page = _Page()
        self._pages.add(page)
        try:
            yield "retry: 2000\n\n"
            while not self._ended:
                with contextlib.suppress(TimeoutError):  # nothing moved: the comment keeps the connection alive
                    await asyncio.wait_for(page.news.wait(), KEEP_ALIVE_SECONDS)
                changes = page.take()
                if not changes:
                    yield ": nothing new\n\n"
                    continue
                for change in changes:
                    yield f"event: changed\ndata: {json.dumps(change)}\n\n"
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._pages.discard(page)


class _Page:
    """What one open page has not been sent yet: the last change of each evaluation."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._waiting: dict[str, Mapping[str, object]] = {}

    def add(self, change: Mapping[str, object]) -> None:
        identity = str(change["id"])
        if len(self._waiting) < MAX_WAITING or identity in self._waiting:
            self._waiting[identity] = change
        else:
            self._waiting = {"": {"all": True}}
        self.news.set()

    def take(self) -> list[Mapping[str, object]]:
        waiting, self._waiting = list(self._waiting.values()), {}
        self.news.clear()
        return waiting
