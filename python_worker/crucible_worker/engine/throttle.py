"""How many samples of an attempt may be at work: as many as its request or a caller says; none while it is paused."""

from __future__ import annotations

import asyncio
import time

from crucible_worker.engine.controls import Control

__all__ = ["Throttle"]


class Throttle:
    """Of one attempt, in one event loop; it also counts the time in which the attempt was not paused."""

    def __init__(self, control: Control, *, asked: int, most: int, since: float) -> None:
        """See the module.

        Args:
            control: what callers have set before.
            asked: samples at work at once, where no caller sets another number.
            most: the worker's bound of that number.
            since: when the attempt began, by `time.monotonic`.
        """
        self._asked, self._most, self._since = asked, most, since
        self._paused_seconds, self._paused_at = 0.0, since
        self._changed = asyncio.Event()
        self._change = control.change
        self.paused = control.paused
        """Whether no sample may begin."""
        self.allowed = self._limit(control)
        """Tasks that may take samples now."""

    def apply(self, control: Control) -> bool:
        """Apply what callers have set; returns whether that begins or ends a pause. Older settings change nothing."""
        if control.change <= self._change:
            return False
        self._change, self.allowed = control.change, self._limit(control)
        turned = control.paused != self.paused
        if turned:
            now = time.monotonic()
            if control.paused:
                self._paused_at = now
            else:
                self._paused_seconds += now - self._paused_at
            self.paused = control.paused
        self._changed.set()
        self._changed = asyncio.Event()
        return turned

    @property
    def active_seconds(self) -> float:
        """Time since the beginning of the attempt, without pauses."""
        until = self._paused_at if self.paused else time.monotonic()
        return until - self._since - self._paused_seconds

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    async def opened(self) -> None:
        """Wait while it is paused."""
        while self.paused:
            await self._changed.wait()

    def _limit(self, control: Control) -> int:
        return 0 if control.paused else min(control.concurrency or self._asked, self._most)
