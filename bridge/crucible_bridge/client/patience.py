"""Trying again what a lost connection or a worker that stops has ended: for how long, and with which pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Code

__all__ = ["BACKOFF_SECONDS", "DEFAULT_PATIENCE_SECONDS", "MAX_BACKOFF_SECONDS", "Patience", "is_lost", "repeated"]

DEFAULT_PATIENCE_SECONDS = 60.0
"""How long is tried again, if the caller does not set it."""
BACKOFF_SECONDS = 0.05
"""Wait before the first new attempt; doubled each time, and drawn uniformly from half of it to all of it."""
MAX_BACKOFF_SECONDS = 5.0
"""Longest wait between two attempts, if the worker does not give another one."""

# Codes of lost connections, and of workers that stop, start, or wait for their journal.
_LOST = (Code.UNAVAILABLE, Code.INTERNAL)

T = TypeVar("T")


def is_lost(error: BridgeError) -> bool:
    """Whether another worker may answer what this error ended."""
    return error.retryable and error.code in _LOST


class Patience:
    """What is left of a time that begins with the first failure in a row."""

    def __init__(self, seconds: float) -> None:
        """Try for so many seconds after the first failure."""
        self._seconds = seconds
        self._attempt = 0
        self._until: float | None = None

    def restart(self) -> None:
        """Count anew: there was progress."""
        self._attempt, self._until = 0, None

    async def wait(self, error: BridgeError) -> None:
        """Wait before the next attempt, as long as the worker or the backoff says.

        Raises:
            BridgeError: the given one; the time would be over by then.
        """
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._seconds
        wait = _backoff(self._attempt) if error.retry_after is None else error.retry_after
        if now + wait > self._until:
            raise error
        self._attempt += 1
        await asyncio.sleep(wait)


async def repeated(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Attempt a call until it has a result, or an error that no other worker would change.

    Args:
        attempt: makes the call.
        seconds: how long; they count anew after an attempt that took longer than MAX_BACKOFF_SECONDS.

    Raises:
        BridgeError: of the last attempt.
    """
    loop, patience = asyncio.get_running_loop(), Patience(seconds)
    while True:
        began = loop.time()
        try:
            return await attempt()
        except BridgeError as error:
            if not is_lost(error):
                raise
            if loop.time() - began > MAX_BACKOFF_SECONDS:
                patience.restart()
            await patience.wait(error)


def _backoff(attempt: int) -> float:
    ceiling = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(attempt, 16))
    return random.uniform(ceiling / 2, ceiling)
