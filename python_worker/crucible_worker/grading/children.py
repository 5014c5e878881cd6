"""What runs in the children of a `GradingPool`: how one begins, and how it works through what it is given.

Nothing heavy is imported here: the worker sends these functions by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from crucible_worker.lifetime import ask_for_death

__all__ = ["FORKSERVER_VARIABLE", "MEMORY_BYTES", "OUT_OF_TIME", "Answer", "begin", "report", "work"]

MEMORY_BYTES = 512 * 1024 * 1024
"""Address space that a child may take beyond what it begins with; more is a MemoryError inside it."""
OUT_OF_TIME = -signal.SIGPROF
"""The exit code of a child whose processor time is used up."""
FORKSERVER_VARIABLE = "_CRUCIBLE_GRADING_FORKSERVER"
"""Environment variable of a forkserver: JSON with its parent's process id, modules to load, and whom to tell."""

_OOM_SCORE_ADJ = 1_000
_failure = "this process is no child of a grading pool"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one item."""

    value: Any = None
    """What the function returned."""
    duration_ns: int = 0
    """Processor time that it took, nanoseconds. Where it was killed for its time: what it had."""
    lost: Literal["", "timeout", "stalled", "memory", "died"] = ""
    """Why there is no value: it was killed for its processor time, or by the clock where it got too little of that, had
    not enough memory, or its child died over it, twice."""
    error: str = ""
    """Type and text of what the function raised: a bug."""
    trace: str = ""
    """Where it was raised."""


def begin(modules: Sequence[str]) -> None:
    """Begin the life of a child: bound to its parent's, with little memory, with its modules loaded.

    What fails is kept for `report` to tell: a child that ended here would be replaced by the next to fail.
    """
    global _failure
    # A computation inside C hears no handler of Python's; SIGTERM ends it by default.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF,))
    try:
        _be_bound()
        for module in modules:
            importlib.import_module(module)
        # Collections would write into every page that is shared with the forkserver.
        gc.freeze()
        _limit_memory()
    except Exception as error:
        _failure = f"{type(error).__name__}: {error}"
    else:
        _failure = ""


def report() -> str:
    """Why this child cannot work; empty where it can."""
    return _failure


def work(function: Callable[[Any], Any], items: Sequence[Any], seconds: float, cpu_seconds: float) -> list[Answer]:
    """Work through items until so many seconds are over: at least one, and each to its end.

    Args:
        function: does one item; by contract it never raises.
        items: one or more.
        seconds: after which the rest is left to another turn, so that nobody waits long for a child.
        cpu_seconds: of processor time of this process, after which the kernel ends it with `OUT_OF_TIME`. How long
            others had the processor meanwhile plays no part.

    Returns:
        Answers to the first items.
    """
    answers: list[Answer] = []
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


def _answer(function: Callable[[Any], Any], item: Any) -> Answer:
    started = time.thread_time_ns()
    try:
        value = function(item)
    except MemoryError:
        gc.collect()
        return Answer(lost="memory", duration_ns=time.thread_time_ns() - started)
    except Exception as error:
        return Answer(
            error=f"{type(error).__name__}: {error}",
            trace=traceback.format_exc(limit=-5),
            duration_ns=time.thread_time_ns() - started,
        )
    return Answer(value=value, duration_ns=time.thread_time_ns() - started)


def _be_bound() -> None:
    from crucible_worker.grading import pool_preload  # ties whoever imports it to its parent's life

    ask_for_death()
    if os.getppid() != pool_preload.FORKSERVER_PID != os.getpid():
        os._exit(0)  # the forkserver died before the kernel was asked
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory runs out all the same, a child is what is missed least.
    with contextlib.suppress(OSError):  # no /proc, or a sandbox without this file: nothing is worse than before
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
