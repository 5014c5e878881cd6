"""Calls a user's functions, coroutines or plain ones: the plain ones in threads, so that the connection stays alive."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.problems import problem_of
from crucible_bridge.types import Problem

__all__ = ["UsersThreads", "problem_in"]

_log = logging.getLogger(__name__)


class UsersThreads:
    """Threads for functions that are no coroutines."""

    def __init__(self, threads: int) -> None:
        """Use at most so many at once."""
        self._threads = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="orchestrator-model")

    async def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call it, and wait for its result; what it raises is raised here."""
        called = functools.partial(function, *arguments, **named)
        if inspect.iscoroutinefunction(function):
            return await called()
        result = await asyncio.get_running_loop().run_in_executor(self._threads, called)
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Release the threads; calls in them may still end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def problem_in(what: str, error: Exception) -> Problem:
    """Why a user's function has no answer.

    A BridgeError says it itself. The text of any other exception stays here: the worker would record it permanently.

    Args:
        what: what failed, for the message: "the model".
        error: what it raised; an OSError, such as a lost connection, is retryable.
    """
    if isinstance(error, BridgeError):
        return problem_of(error)
    _log.warning("%s failed", what, exc_info=error)
    text = f"{type(error).__name__} in {what}; see its log"
    return problem_of(BackendError(text, retryable=isinstance(error, OSError)))
