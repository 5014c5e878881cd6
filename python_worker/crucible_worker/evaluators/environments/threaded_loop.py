"""Foreign coroutines on a separate event loop in a separate thread: one that blocks does not delay others.

A thread cannot be ended from outside. When its work is abandoned, it receives a request to stop, and has
`CLEANUP_SECONDS` to clean up. If it still blocks then, an exception is raised in it, which ends any loop in Python.
Code that sleeps or waits in C gets the exception when it wakes up; if it never does, only the end of the process helps.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import inspect
import threading
from collections.abc import Callable
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_worker.util.entry_points import error_text

__all__ = ["CLEANUP_SECONDS", "SETTLE_SECONDS", "ForeignFailure", "ThreadedLoop", "Warn", "guarded_call"]

CLEANUP_SECONDS = 10.0
"""How long a group of environments may take to clean up by default."""
SETTLE_SECONDS = 1.0
"""For tasks that are cancelled to end, and for a thread to leave its loop, likewise."""

Warn = Callable[[str, dict[str, Any]], None]
"""Receives failures after the last result: an event, and its fields."""


class ForeignFailure(Exception):
    """Foreign code raised an error, or returned something invalid."""

    def __init__(self, kind: str, message: str) -> None:
        """Make one from its kind, which is the name of its class or a reason, and its message."""
        super().__init__(message)
        self.kind = kind
        self.message = message


class ThreadedLoop:
    """A loop with its thread; to be closed on the loop that made it.

    Args:
        warn: called, on the loop that made it, with failures at the end.
        cleanup_seconds: how long cleaning up may take.
        settle_seconds: how long tasks that are cancelled may take to end, and a thread to leave its loop.
    """

    def __init__(
        self, warn: Warn, *, cleanup_seconds: float = CLEANUP_SECONDS, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self._warn, self._cleanup_seconds, self._settle_seconds = warn, cleanup_seconds, settle_seconds
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="environment-pool")
        self._loop.set_default_executor(self._pool)
        self._over = False
        self._ended = asyncio.Event()
        self._overdue: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._live, name="environment", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function there, and await its result if it is awaitable; may be cancelled.

        Raises:
            ForeignFailure: it raised an error.
        """
        given = asyncio.run_coroutine_threadsafe(guarded_call(function, args, options), self._loop)
        return await asyncio.wrap_future(given)

    def close(self, cleanup: Callable[[], Any] | None) -> None:
        """Cancel what runs there, and let it clean up and end; does not wait."""
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end(cleanup)))
        self._overdue = self._home.call_later(self._cleanup_seconds + 2 * self._settle_seconds, self._break_off)

    async def wait_closed(self) -> bool:
        """Wait for the end of a closed loop, up to its time limit; returns whether it has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._cleanup_seconds + 3 * self._settle_seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._over:
                # A foreign task that exits passes through the loop, and any code may call the loop's `stop`.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
            self._loop.close()
            # Work in threads of a pool counts as this thread's own: it waits as long as they do.
            self._pool.shutdown()
        finally:
            # The worker's loop may be closed already: then nothing waits for this one.
            with contextlib.suppress(RuntimeError):
                self._home.call_soon_threadsafe(self._has_ended)

    def _has_ended(self) -> None:
        self._ended.set()
        if self._overdue is not None:
            self._overdue.cancel()

    async def _end(self, cleanup: Callable[[], Any] | None) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=self._settle_seconds)
        try:
            await self._clean_up(cleanup)
            await self._loop.shutdown_asyncgens()
        finally:
            self._over = True
            self._loop.stop()

    async def _clean_up(self, cleanup: Callable[[], Any] | None) -> None:
        if cleanup is None:
            return
        try:
            await asyncio.wait_for(guarded_call(cleanup, (), {}), self._cleanup_seconds)
        except TimeoutError:
            self._tell("environment_cleanup_timeout", seconds=self._cleanup_seconds)
        except ForeignFailure as failure:
            self._tell("environment_cleanup_failed", kind=failure.kind, message=failure.message)

    def _tell(self, event: str, **fields: Any) -> None:
        self._home.call_soon_threadsafe(self._warn, event, fields)

    def _break_off(self) -> None:
        if not self._thread.is_alive() or self._thread.ident is None:
            return
        self._warn("environment_stuck", {})
        if not self._loop.is_closed():  # else it waits for its pool, which this would not reach
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit))


async def guarded_call(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a user's function, and await its result if it is awaitable.

    Raises:
        ForeignFailure: it raised anything.
    """
    try:
        given = function(*args, **options)
        return await given if inspect.isawaitable(given) else given
    except ForeignFailure:
        raise
    except BridgeError as error:
        raise ForeignFailure(error.reason, error.message) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The worker does not cancel this call: passed on, the error would look like a cancelled sample.
        raise ForeignFailure("CancelledError", "was cancelled by what it waited for") from error
    except GeneratorExit:  # of a loop that is closed
        raise
    except BaseException as error:  # foreign code may raise anything; a panic in Rust, for example, is not an Exception
        raise ForeignFailure(type(error).__name__, error_text(error)) from error
