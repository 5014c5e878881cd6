"""The code of the children of a `GradingPool`: how a child starts, and how it processes its items.

Nothing heavy is imported here: the worker knows these names as well. A task names its function; items and values travel
as msgpack, and are decoded as the types that the function declares. So the worker never unpickles what a child sends.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import resource
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from crucible_worker.children.frames import frame, receive
from crucible_worker.children.lifetime import limit, limit_growth, set_oom_score
from crucible_worker.children.messages import decoded, encoded

__all__ = ["MEMORY_BYTES", "OUT_OF_TIME", "ChildResult", "Lost", "is_there", "serve", "work"]

MEMORY_BYTES = 512 * 1024 * 1024
"""Address space that a child may add to its initial size; beyond it, Python raises MemoryError in the child."""
OUT_OF_TIME = -signal.SIGPROF
"""The exit code of a child whose processor time is used up."""


Lost: TypeAlias = Literal["", "timeout", "stalled", "memory", "died"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """The result of one item."""

    value: Any = None
    """What the function returned."""
    duration_ns: int = 0
    """Processor time that it took, nanoseconds. If it was killed for its time, the limit."""
    lost: Lost = ""
    """Why there is no value: it was killed at its limit of processor time, or by the clock as it got too little of it,
    had not enough memory, or its child died over it twice."""
    error: str = ""
    """Type and text of an exception that the function raised: a bug."""
    trace: str = ""
    """Where it was raised."""


def serve(end: socket.socket, name: str) -> None:
    """Run as a child, with limits of memory: process what is sent until the socket is closed.

    Args:
        end: the child's end of the socket.
        name: not used.
    """
    # Python's signal handlers do not run during a computation in C; the default actions end it.
    for number in (signal.SIGTERM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF,))
    limit(resource.RLIMIT_CORE, 0)
    set_oom_score()
    limit_growth(MEMORY_BYTES, resource.RLIMIT_AS)
    while (body := receive(end)) is not None:
        module, name, items, seconds, cpu_seconds = _TASK.decode(body)
        function = _named(module, name)
        answers = work(function, decoded(items, _items_of(function)), seconds, cpu_seconds)
        end.sendall(frame(encoded([(one.value, one.duration_ns, one.lost, one.error, one.trace) for one in answers])))


def is_there(item: None) -> bool:
    """Be the first task of a child."""
    return True


_TASK = msgspec.msgpack.Decoder(tuple[str, str, msgspec.Raw, float, float])


@functools.cache
def _items_of(function: Callable[[Any], Any]) -> msgspec.msgpack.Decoder[list[Any]]:
    """Reads the items of a function."""
    hint = next(iter(get_type_hints(function).values()))
    return msgspec.msgpack.Decoder(list[Any if hint is object else hint])


@functools.cache
def _named(module: str, name: str) -> Callable[[Any], Any]:
    return getattr(importlib.import_module(module), name)


def work(function: Callable[[Any], Any], items: Sequence[Any], seconds: float, cpu_seconds: float) -> list[ChildResult]:
    """Process items until so many seconds are over: at least one, and each to its end.

    Args:
        function: does one item; by contract it never raises.
        items: one or more.
        seconds: after which the rest is left to another turn, so that no caller waits long for a child.
        cpu_seconds: of processor time of this process, after which the kernel ends it with `OUT_OF_TIME`. The time
            that other processes used meanwhile does not count.

    Returns:
        Answers to the first items.
    """
    answers: list[ChildResult] = []
    end = time.monotonic() + seconds
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        for item in items:
            answers.append(_answer(function, item))
            if time.monotonic() >= end:
                break
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return answers


def _answer(function: Callable[[Any], Any], item: Any) -> ChildResult:
    started = time.thread_time_ns()
    try:
        value = function(item)
    except MemoryError:
        gc.collect()
        return ChildResult(lost="memory", duration_ns=time.thread_time_ns() - started)
    except Exception as error:
        return ChildResult(
            error=f"{type(error).__name__}: {error}",
            trace=traceback.format_exc(limit=-5),
            duration_ns=time.thread_time_ns() - started,
        )
    return ChildResult(value=value, duration_ns=time.thread_time_ns() - started)
