"""An event loop whose clock jumps to the next timer whenever nothing else is left to do.

For what waits by the loop's own time, in one thread: hours pass at once, and are exact.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    """Passes the time until the next timer, in place of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a loop whose time begins at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
