"""The children of one pool: a server that has their modules loaded forks them; each does one task at a time.

Every pool of this process that needs the same modules shares their server, because loading takes seconds. It ends with
the process. Nothing here tries anything twice.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import enum
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from crucible_bridge.errors import Unavailable
from crucible_worker.children.fork_server import join
from crucible_worker.children.forks import Fork, Forks, NotForked
from crucible_worker.children.process import Channel, Process
from crucible_worker.grading import children
from crucible_worker.grading.children import ChildResult

__all__ = ["ChildProcesses", "TaskEnding"]

START_SECONDS = 60.0
"""Time for the server to load its modules, and for the first child to answer."""
STALL_SECONDS = 2.0
"""Time for a killed child to be gone."""

_HOST = "crucible_worker.grading.pool_host"
# Of the process, whose event loops may start pools at the same time.
_servers: dict[tuple[str, ...], tuple[Process, socket.socket]] = {}
_starting = threading.Lock()


class TaskEnding(enum.Enum):
    """How a task ended that returned nothing."""

    TIMEOUT = enum.auto()
    """Its child was ended for its processor time."""
    STALLED = enum.auto()
    """The clock killed its child, which got too little processor time to finish or to reach its limit."""
    DIED = enum.auto()
    """Its child died."""
    BROKEN = enum.auto()
    """The server of the children died, or the pool was closed; this task may not be the cause."""


class _Broken(Exception):
    """There is no server any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Child:
    fork: Fork
    channel: Channel


class ChildProcesses:
    """A number of children. Made by `start`; belongs to the running event loop."""

    def __init__(self, forks: Forks) -> None:
        self._forks = forks
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._over = False

    @classmethod
    async def start(cls, count: int, modules: Sequence[str]) -> ChildProcesses | None:
        """Start `count` children, each with these modules, and wait until one has answered.

        Returns:
            None if no child answers: they may have been killed.

        Raises:
            Unavailable: their modules cannot be loaded (reason GRADING_POOL).
        """
        try:
            processes = cls(Forks(_joined(tuple(modules)), _broken))
        except OSError:
            return None
        ready = False
        try:
            async with asyncio.timeout(START_SECONDS):
                for _ in range(count):  # one by one: `stop` ends those that are there
                    processes._idle.append(await processes._forked())
                said = await processes.ask(START_SECONDS, children.is_there, (None,), 0.0, START_SECONDS)
                ready = not isinstance(said, TaskEnding)
        except (TimeoutError, NotForked, _Broken):
            return None
        except Unavailable:
            _dismiss(tuple(modules))
            raise
        finally:
            if not ready:
                await processes.stop()
        return processes if ready else None

    async def ask(
        self, seconds: float, function: Callable[[Any], Any], items: Sequence[Any], turn: float, cpu_seconds: float
    ) -> list[ChildResult] | TaskEnding:
        """Let a child run `children.work` within a limit of seconds by the clock; returns its answer, or how it ended.

        To be called for no more tasks at once than there are children.
        """
        try:
            child = await self._taken()
        except (NotForked, _Broken):
            return TaskEnding.BROKEN
        self._busy.add(child)
        answers = None
        try:
            async with asyncio.timeout(seconds):
                child.channel.send(children.task_of(function, items, turn, cpu_seconds))
                body = await child.channel.receive()
            answers = None if body is None else children.answers_of(function, items, body)
        except TimeoutError:
            await self._reaped(child)
            return TaskEnding.BROKEN if self._over else TaskEnding.STALLED
        except ValueError:
            pass  # a child that sends what is no answer has died over its task
        finally:
            self._busy.discard(child)
            if answers is None:
                child.fork.kill()
                child.channel.abort()
            else:
                self._idle.append(child)
        if answers is not None:
            return answers
        status = await self._reaped(child)
        if self._over or status is None:
            return TaskEnding.BROKEN
        return TaskEnding.TIMEOUT if status == children.OUT_OF_TIME else TaskEnding.DIED

    async def stop(self) -> None:
        """End every child; callers that wait get `TaskEnding.BROKEN`. Idempotent."""
        self._over = True
        living = [*self._idle, *self._busy]
        self._idle.clear()
        for child in living:
            child.fork.kill()
            child.channel.abort()
        for child in living:
            await self._reaped(child)
        self._forks.close()

    async def _taken(self) -> _Child:
        """A child that has nothing to do, or a new one in place of one that has died."""
        while self._idle:
            child = self._idle.pop()
            if child.fork.alive:
                return child
            child.channel.abort()
        return await self._forked()

    async def _forked(self) -> _Child:
        if self._over:
            raise _Broken
        fork = await self._forks.start()
        return _Child(fork, await Channel.over(fork.end))

    async def _reaped(self, child: _Child) -> int | None:
        """Wait for a child's end, within a limit; its exit status if that is known."""
        child.fork.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALL_SECONDS):
                return await asyncio.shield(child.fork.ended)
        return None


def _joined(modules: tuple[str, ...]) -> socket.socket:
    """A control socket of the server of these modules; starts the server if none runs.

    Call it in a thread that lives as long as the children: they die when that thread ends.
    """
    with _starting:
        process, control = _servers.get(modules, (None, None))
        if process is None or control is None or process.ends(time.monotonic()):
            process, control = _servers[modules] = _started(modules)
        try:
            return join(control)
        except OSError:  # it is about to end
            process.kill()
            raise


def _dismiss(modules: tuple[str, ...]) -> None:
    """End a server that has refused: it is about to end, and the next start needs another one to say why."""
    with _starting:
        process, control = _servers.pop(modules, (None, None))
    if process is not None and control is not None:
        process.kill()
        control.close()


def _started(modules: tuple[str, ...]) -> tuple[Process, socket.socket]:
    environment = {
        **os.environ,
        # What this process imports its children can import too.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # Threads of OpenBLAS would make every fork a fork of several threads.
        "OPENBLAS_NUM_THREADS": "1",
    }
    process, control = Process.start(_HOST, *modules, environment=environment, kind=socket.SOCK_SEQPACKET, logs=True)
    atexit.register(process.reap)
    atexit.register(control.close)
    return process, control


def _broken(status: int | None) -> _Broken:
    return _Broken()
