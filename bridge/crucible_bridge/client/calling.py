"""Calls a user's functions, coroutines or plain ones: the plain ones in threads, so that the connection stays alive."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from crucible_bridge.client.streams import cancelled_from_outside
from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.problems import problem_of
from crucible_bridge.types import Problem

__all__ = ["Escaped", "Note", "UsersThreads", "problem_in"]

_log = logging.getLogger(__name__)


Note: TypeAlias = Callable[[concurrent.futures.Future[Any]], None]
"""Gets the work of a thread when it begins."""


class Escaped(Exception):
    """Raised in place of an exception that would leave its question without an answer; that one is the cause.

    SystemExit would end the event loop, and a thread's StopIteration never arrives in a future. A CancelledError of the
    function's own, such as that of a task that it awaited, would end the call as if the worker had withdrawn it.
    """


class UsersThreads:
    """Threads for functions that are no coroutines."""

    def __init__(self, threads: int) -> None:
        """Use at most so many at once."""
        self._threads = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="orchestrator-model")

    async def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call it, and wait for its result; errors as of `call_noted`."""
        return await self.call_noted(_forget, function, *arguments, **named)

    async def call_noted(self, note: Note, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call it, and wait for its result; what it raises is raised here.

        Args:
            note: called with the thread's future, which a cancel of this call leaves alone; not called for a coroutine.
            function: what to call.
            *arguments: its arguments.
            **named: its named arguments.

        Raises:
            Escaped: it raised what would end this process or the call's task, such as SystemExit; see there.
        """
        called = functools.partial(function, *arguments, **named)
        if inspect.iscoroutinefunction(function):
            return await _awaited(called())
        work = self._threads.submit(_in_thread, called)
        note(work)
        result = await asyncio.wrap_future(work)
        return await _awaited(result) if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Release the threads; calls in them may still end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _forget(work: concurrent.futures.Future[Any]) -> None:
    """Take no note."""


def _in_thread(called: Callable[[], Any]) -> Any:
    try:
        return called()
    except StopIteration as error:
        raise Escaped from error
    except Exception:
        raise
    except BaseException as error:  # signals reach the main thread alone: it is the function's own
        raise Escaped from error


async def _awaited(result: Awaitable[Any]) -> Any:
    try:
        return await result
    except SystemExit as error:
        raise Escaped from error
    except asyncio.CancelledError as error:
        if cancelled_from_outside():
            raise
        raise Escaped from error


def problem_in(what: str, error: Exception) -> Problem:
    """Why a user's function has no answer.

    A BridgeError says it itself. The text of any other exception stays here: the worker would record it permanently.

    Args:
        what: what failed, for the message: "the model".
        error: what it raised; an OSError, such as a lost connection, is retryable.
    """
    if isinstance(error, BridgeError):
        return problem_of(error)
    cause = error.__cause__ if isinstance(error, Escaped) and error.__cause__ is not None else error
    _log.warning("%s failed", what, exc_info=cause)
    text = f"{type(cause).__name__} in {what}; see its log"
    return problem_of(BackendError(text, retryable=isinstance(error, OSError)))
