"""The child processes of the mathematics: a model's text may take endless time or all memory there, without harm.

A fork server that has the mathematics loaded forks them. A child whose task takes too long is ended and replaced. Time
is processor time of the child, so verdicts do not depend on what else the machine does; the clock ends only a task that
gets too little of it. If the server dies, another one is started, and the tasks are sent again. No task occupies a
child for longer than a turn, except slow tasks, and those never occupy all children.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, get_type_hints

import msgspec
import structlog

from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.children.fork_server import join
from crucible_worker.children.forks import Fork, Forks, NotForked
from crucible_worker.children.frames import frame
from crucible_worker.children.messages import decoded, encoded
from crucible_worker.children.process import Channel, Process
from crucible_worker.grading import children
from crucible_worker.grading.children import ChildResult, Lost

__all__ = [
    "CLOCK_FACTOR",
    "HEAVY_BYTES",
    "MATH_MODULES",
    "MAX_CHILDREN",
    "MAX_DEATHS",
    "MIN_CHILDREN",
    "PATIENCE_SECONDS",
    "SLOW_SECONDS",
    "STUCK_SECONDS",
    "TURN_BYTES",
    "TURN_ITEMS",
    "TURN_SECONDS",
    "ChildProcesses",
    "GradingPool",
    "PrioritySemaphore",
    "TaskEnding",
    "TaskSet",
    "default_children",
    "grading_closed",
    "no_pool",
]

# Tasks that run to their end, even if no caller waits for them.


class TaskSet:
    """Those of one owner, in one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine to its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ended(self) -> None:
        """Wait for all of them, those that begin meanwhile included."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that waits receives it; there may be none


# The children of one pool: a server that has their modules loaded forks them; each does one task at a time.
#
# Every pool of this process that needs the same modules shares their server, because loading takes seconds. It ends
# with the process. Nothing here tries anything twice.

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
                child.channel.send(_task_of(function, items, turn, cpu_seconds))
                body = await child.channel.receive()
            answers = None if body is None else _answers_of(function, items, body)
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
        try:
            for child in living:
                await self._reaped(child)
        finally:  # a cancellation leaves no socket behind
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


def _task_of(function: Callable[[Any], Any], items: Sequence[Any], seconds: float, cpu_seconds: float) -> bytes:
    """A frame that has a child do `children.work`; the function is a module's own."""
    return frame(encoded((function.__module__, function.__qualname__, items, seconds, cpu_seconds)))


def _answers_of(function: Callable[[Any], Any], items: Sequence[Any], body: bytes) -> list[ChildResult]:
    """The answers of a child to the first of these items.

    Raises:
        ValueError: they are none of this function, there is none, or there are more than items.
    """
    found = decoded(body, _reader_of(function))
    if not 0 < len(found) <= len(items):
        raise ValueError(f"{len(found)} answers to {len(items)} items")
    return [
        ChildResult(value=value, duration_ns=duration_ns, lost=lost, error=error, trace=trace)
        for value, duration_ns, lost, error, trace in found
    ]


@functools.cache
def _reader_of(function: Callable[[Any], Any]) -> msgspec.msgpack.Decoder[list[tuple[Any, int, Lost, str, str]]]:
    """Reads the answers of a function."""
    hint = get_type_hints(function)["return"]
    value = Any if hint is object else hint
    return msgspec.msgpack.Decoder(list[tuple[value | None, int, Lost, str, str]])


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


# The pool: it divides the work into turns of the children, and sends again what a failure of them lost.

MATH_MODULES = ("crucible_worker.grading.math.rehearsal",)
"""Loads everything that the mathematics needs, so that a child's first task does not wait."""
MIN_CHILDREN = 2
"""One for slow tasks, and one that never gets slow tasks."""
MAX_CHILDREN = 64
"""The most children of one worker."""
DEFAULT_MAX_CHILDREN = 4
"""The most children of a worker without the option: there may be many workers on a machine."""
TURN_ITEMS = 128
"""Most items that are sent to a child at once."""
TURN_BYTES = 256 * 1024
"""Bytes of the items of a turn; the item that reaches it is the last of its turn."""
HEAVY_BYTES = 16 * 1024
"""Bytes of an item; a larger one gets a separate turn."""
TURN_SECONDS = 0.010
"""After this time a child returns what it has done and takes the next in line, of any caller."""
PATIENCE_SECONDS = 0.050
"""Calls without a turn so far come first; other calls, and work that may be long, wait this much longer."""
STUCK_SECONDS = 0.150
"""Processor time of a turn: if it takes longer, an item in it does not end. The child is ended, and each item is tried
separately."""
SLOW_SECONDS = 0.300
"""Processor time of a slow task, and of an item that is tried separately: then the child is ended."""
CLOCK_FACTOR = 5
"""A child is killed when the clock reaches this multiple of its processor limit, even if it got less processor time."""
MAX_DEATHS = 2
"""Deaths of children at the same item: then the item is the cause, and not chance."""

_MIN_TURN_ITEMS = 16  # fewer are not worth a second child
_MAX_ATTEMPTS = 4  # at a task whose pool broke, and at a start

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class _ChildEnd:
    """How work in a child ended."""

    said: list[ChildResult] | TaskEnding
    duration_ns: int
    """A time limit by the clock."""


class PrioritySemaphore:
    """A limited number of turns at once; more callers wait in line: first come, first served, except for patient ones.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def acquire(self, patience: float = 0.0) -> None:
        """Wait for a turn; callers without patience that come up to `patience` seconds later go first."""
        if self._free and not self._line:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        heapq.heappush(self._line, (loop.time() + patience, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it came with the cancellation
            raise

    def release(self) -> None:
        """Give a turn back, to the next in line."""
        while self._line:
            _, _, turn = heapq.heappop(self._line)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def default_children() -> int:
    """Default number of children: one for each core, from `MIN_CHILDREN` to `DEFAULT_MAX_CHILDREN`."""
    return min(max(len(os.sched_getaffinity(0)), MIN_CHILDREN), DEFAULT_MAX_CHILDREN)


class GradingPool:
    """Runs functions in children that can be killed. Belongs to the event loop that starts it.

    Functions are sent by name, so they must be module-level; items and values are of the types that they declare. When
    a pool is closed, the fork server stays for the next one; it ends with this process.

    Args:
        children: how many; `default_children` if None.
        modules: loaded before a child is forked.
        at_once: how many of them work at the same time; all if None.
    """

    def __init__(
        self,
        children: int | None = None,
        *,
        modules: Sequence[str] = MATH_MODULES,
        at_once: int | None = None,
    ) -> None:
        self.children = default_children() if children is None else children
        """How many processes."""
        if not MIN_CHILDREN <= self.children <= MAX_CHILDREN:
            raise ValueError(f"is {children}, not {MIN_CHILDREN} to {MAX_CHILDREN}")
        self.on_warm_change: Callable[[bool], object] = lambda warm: None
        """Called with `warm` whenever it changes."""
        self._modules = tuple(modules)
        self._processes: ChildProcesses | None = None
        self._start: asyncio.Task[ChildProcesses] | None = None
        self._closed = asyncio.Event()
        self._turns = PrioritySemaphore(self.children if at_once is None else at_once)
        # A slow task takes one of these before it waits for its turn.
        self._slow = asyncio.Semaphore(self.children // 2)
        self._tasks = TaskSet()
        self._log = structlog.get_logger("crucible_worker.grading")

    @property
    def warm(self) -> bool:
        """Whether a child has answered, and the pool has not broken since."""
        return self._processes is not None

    async def start(self) -> None:
        """Start the children and wait until one has answered. In the main thread: they die with the thread.

        Raises:
            Unavailable: they do not start (reason GRADING_POOL), or the pool is closed (reason GRADING_CLOSED).
        """
        await self._ready()

    async def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], weigh: Callable[[Any], int] = lambda item: 0
    ) -> list[ChildResult]:
        """Do bounded work: all children share the items in turns, alongside other calls.

        If a child is killed at an item, only that item is lost. After a cancellation nothing more of the call is begun.

        Args:
            function: does one item.
            items: each gets one value in return.
            weigh: about how many bytes an item has when it is sent.

        Raises:
            Unavailable: the pool is closed, or does not start again.
        """
        answers: list[ChildResult] = [ChildResult()] * len(items)
        weights = [weigh(item) for item in items]
        # The heavy ones last, one in a turn, and never with every child: each may take longer than a turn should.
        waiting = collections.deque(sorted(range(len(items)), key=lambda index: weights[index] > HEAVY_BYTES))
        size = min(max(-(-len(items) // self.children), _MIN_TURN_ITEMS), TURN_ITEMS)

        def taken() -> list[int]:
            indices = [waiting.popleft()]
            room = TURN_BYTES - weights[indices[0]]
            while waiting and len(indices) < size and room > 0 and weights[waiting[0]] <= HEAVY_BYTES:
                indices.append(waiting.popleft())
                room -= weights[indices[-1]]
            return indices

        async def take_turns() -> None:
            patience = 0.0
            while waiting:
                indices = taken()
                heavy = weights[indices[0]] > HEAVY_BYTES
                async with self._slow if heavy else contextlib.nullcontext():
                    done = await self._turn(function, [items[index] for index in indices], patience)
                patience = PATIENCE_SECONDS
                for index, answer in zip(indices, done):
                    answers[index] = answer
                waiting.extendleft(reversed(indices[len(done) :]))

        tasks = [asyncio.create_task(take_turns()) for _ in range(min(self.children, -(-len(items) // size)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return answers

    async def run(self, function: Callable[[Any], Any], item: Any) -> ChildResult:
        """Do work that may never end: it gets `SLOW_SECONDS` of processor time.

        Raises:
            Unavailable: the pool is closed, or does not start again.
        """
        async with self._slow:
            return await self._by_itself(function, item)

    async def aclose(self) -> None:
        """End every child and thread, within half a second. Calls in flight raise Unavailable. Idempotent."""
        self._closed.set()
        self._retire(self._processes)
        await self._tasks.ended()

    async def _turn(
        self, function: Callable[[Any], Any], items: Sequence[Any], patience: float
    ) -> Sequence[ChildResult]:
        """Give a child a turn with some items; returns the answers to the first of them."""
        end = await self._attempt(STUCK_SECONDS, function, items, TURN_SECONDS, patience)
        if not isinstance(end.said, TaskEnding):
            return end.said
        return [await self._by_itself(function, item) for item in items]

    async def _by_itself(self, function: Callable[[Any], Any], item: Any) -> ChildResult:
        """One item in one child."""
        deaths = 0
        while True:
            end = await self._attempt(SLOW_SECONDS, function, (item,), 0.0, PATIENCE_SECONDS)
            if not isinstance(end.said, TaskEnding):
                return end.said[0]
            if end.said is not TaskEnding.DIED:
                lost = "timeout" if end.said is TaskEnding.TIMEOUT else "stalled"
                return ChildResult(lost=lost, duration_ns=round(SLOW_SECONDS * 1e9))
            deaths += 1
            if deaths == MAX_DEATHS:
                return ChildResult(lost="died", duration_ns=end.duration_ns)

    async def _attempt(
        self, seconds: float, function: Callable[[Any], Any], items: Sequence[Any], turn: float, patience: float
    ) -> _ChildEnd:
        """Let a child process items when it is their turn.

        Work that has begun continues when its caller is gone: to kill a child costs more than it saves.
        """
        await self._turns.acquire(patience)
        task = self._tasks.start(self._work(seconds, function, items, turn))
        # Not before the child is free again, even if the caller no longer waits.
        task.add_done_callback(lambda _: self._turns.release())
        return await asyncio.shield(task)

    async def _work(
        self, seconds: float, function: Callable[[Any], Any], items: Sequence[Any], turn: float
    ) -> _ChildEnd:
        for _ in range(_MAX_ATTEMPTS):
            processes = await self._ready()
            started = time.monotonic_ns()
            said = await processes.ask(CLOCK_FACTOR * seconds, function, items, turn, seconds)
            if said is not TaskEnding.BROKEN:
                return _ChildEnd(said, time.monotonic_ns() - started)
            self._retire(processes)
        raise Unavailable("the children that grade die again and again", reason=Reason.GRADING_POOL)

    async def _ready(self) -> ChildProcesses:
        """The processes; starts them if there are none."""
        if self._closed.is_set():
            raise grading_closed()
        if self._processes is not None:
            return self._processes
        if self._start is None:
            self._start = self._tasks.start(self._begin())
        return await asyncio.shield(self._start)

    async def _begin(self) -> ChildProcesses:
        try:
            processes = await self._begun()
        except Unavailable as error:
            if not self._closed.is_set():
                self._log.error("grading_pool_not_started", reason=error.message)
            raise
        finally:
            self._start = None
        if self._closed.is_set():
            await processes.stop()
            raise grading_closed()
        self._processes = processes
        self.on_warm_change(True)
        return processes

    async def _begun(self) -> ChildProcesses:
        for _ in range(_MAX_ATTEMPTS):
            processes = await self._unless_closed(ChildProcesses.start(self.children, self._modules))
            if processes is not None:
                return processes
        raise Unavailable("the children that grade do not start: none of them answers", reason=Reason.GRADING_POOL)

    async def _unless_closed(self, start: Coroutine[Any, Any, ChildProcesses | None]) -> ChildProcesses | None:
        """Wait for a start, which may take seconds, unless the pool is closed meanwhile."""
        starting = asyncio.create_task(start)
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait((starting, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        if starting.cancelled():
            raise grading_closed()
        return starting.result()

    def _retire(self, processes: ChildProcesses | None) -> None:
        """End these processes and use them no more; the calls that found them broken try again, which starts others."""
        if processes is None or processes is not self._processes:
            return
        self._processes = None
        self._tasks.start(processes.stop())
        self.on_warm_change(False)
        if not self._closed.is_set():
            self._log.warning("grading_pool_broken")


def grading_closed() -> Unavailable:
    """The error of calls after the end of the worker's grading."""
    return Unavailable("grading is closed", reason=Reason.GRADING_CLOSED, retryable=False)


def no_pool() -> FailedPrecondition:
    """The error of a worker that has no processes for mathematics."""
    return FailedPrecondition("this worker grades no math: --grading-processes is 0", reason=Reason.NO_GRADING_POOL)
