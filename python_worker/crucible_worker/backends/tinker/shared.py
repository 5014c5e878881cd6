"""What is made once for all who need it, and what blocks while it is made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Shared", "in_thread"]

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Something that is made when it is first needed; what could not be made is tried anew by the next who needs it.

    Args:
        make: makes it. It goes on when those who wait for it are cancelled, as others may come to wait.
    """

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._making: asyncio.Future[_T] | None = None

    @property
    def made(self) -> _T | None:
        """It, where it is made already."""
        making = self._making
        if making is None or not making.done() or making.cancelled() or making.exception() is not None:
            return None
        return making.result()

    async def get(self) -> _T:
        """It, made if need be."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._finished)
        return await asyncio.shield(self._making)

    def drop(self) -> None:
        """Have it made anew when it is next needed; who is making it is stopped."""
        making, self._making = self._making, None
        if making is not None:
            making.cancel()

    def _finished(self, making: asyncio.Future[_T]) -> None:
        # Asking for the exception also keeps asyncio from complaining that nobody did.
        if (making.cancelled() or making.exception() is not None) and self._making is making:
            self._making = None


def in_thread(function: Callable[[], _T], *, leftover: Callable[[_T], object] = lambda _: None) -> asyncio.Future[_T]:
    """Call what blocks, and may do so for minutes, in a thread that keeps no process from ending.

    Args:
        function: what to call.
        leftover: told of the result where nobody waits for it any longer.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(error)
        else:
            if outcome.set_running_or_notify_cancel():
                outcome.set_result(result)
            else:
                leftover(result)

    threading.Thread(target=run, name="tinker", daemon=True).start()
    return asyncio.wrap_future(outcome)
