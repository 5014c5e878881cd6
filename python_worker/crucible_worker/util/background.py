"""What a worker does as long as it runs: a task that meets an unforeseen error is logged, and begins again."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from crucible_bridge.types import BackgroundTask
from crucible_worker.util.error_reporter import ErrorReporter

__all__ = ["FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS", "Background", "retrieve_error"]

FIRST_PAUSE_SECONDS = 1.0
"""Seconds between the first failure of a task and its next beginning; doubled with each failure that follows."""
LONGEST_PAUSE_SECONDS = 60.0
"""The most of that. A task that has run for longer begins with the first pause again."""

_log = structlog.get_logger(__name__)


class Background:
    """The tasks of one worker, in its event loop."""

    def __init__(self) -> None:
        self._failed: dict[str, BackgroundTask] = {}
        self._failures = ErrorReporter()

    @property
    def failed(self) -> tuple[BackgroundTask, ...]:
        """The tasks that have failed, in the order of their first failures."""
        return tuple(self._failed.values())

    def keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin a task, and again each time it fails; it ends when `run` returns, or when it is cancelled.

        Args:
            name: what it does, in one word: "retention".
            run: makes what is run.
        """
        return asyncio.create_task(self._kept(name, run), name=name)

    async def _kept(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                await run()
                return
            except Exception as error:  # whatever it is, the worker needs the task
                if time.monotonic() - began > LONGEST_PAUSE_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                self._note(name, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _note(self, name: str, error: Exception, pause: float) -> None:
        error_id = self._failures.logged(_log, "background_task_failed", error, task=name, retry_seconds=pause)
        known = self._failed.setdefault(name, BackgroundTask(name=name))
        self._failed[name] = dataclasses.replace(
            known, failures=known.failures + 1, last_failure_unix_ns=time.time_ns(), error_id=error_id
        )


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of what nothing may wait for any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
