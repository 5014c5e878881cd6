"""Objects that are made once for all callers, and blocking functions that make them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Shared", "in_thread"]

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """An object that is made when it is first needed; if that fails, the next caller tries again.

    Args:
        make: makes it. It continues when the waiting callers are cancelled, as others may come.
    """

    def __init__(self, make: Callable[[], Awaitable[_T]]) -> None:
        self._make = make
        self._making: asyncio.Future[_T] | None = None

    @property
    def made(self) -> _T | None:
        """The object if it is made already, else None."""
        making = self._making
        if making is None or not making.done() or making.cancelled() or making.exception() is not None:
            return None
        return making.result()

    async def get(self) -> _T:
        """The object, made if necessary."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._finished)
        return await asyncio.shield(self._making)

    def drop(self) -> None:
        """Forget it, so that the next caller makes a new one; stops one that is being made."""
        making, self._making = self._making, None
        if making is not None:
            making.cancel()

    def _finished(self, making: asyncio.Future[_T]) -> None:
        # Retrieving the exception also keeps asyncio from logging it.
        if (making.cancelled() or making.exception() is not None) and self._making is making:
            self._making = None


def in_thread(function: Callable[[], _T], *, leftover: Callable[[_T], object] = lambda _: None) -> asyncio.Future[_T]:
    """Call a function that may block for minutes, in a daemon thread, which does not delay the end of the process.

    Args:
        function: what to call.
        leftover: called with the result if no caller waits for it any longer.
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
