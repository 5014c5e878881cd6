"""One pool of pebble's, from its start to its end, and what can be asked of it meanwhile.

Nothing here tries anything twice: a pool that breaks stays broken, and says so to all who wait for it.
"""

from __future__ import annotations

import asyncio
import enum
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.grading import children

if TYPE_CHECKING:
    from pebble import ProcessPool

__all__ = ["Ending", "Processes"]

START_SECONDS = 60.0
"""For the first child to answer; where the forkserver has not loaded the modules, it has to."""
STALL_SECONDS = 2.0
"""A task without an end for so long beyond its time will never have one: the pool is broken."""
POLL_SECONDS = 0.02
"""How often pebble looks for tasks that are late, while there are tasks."""
IDLE_POLL_SECONDS = 0.1
"""How often it looks for dead children otherwise."""


class Ending(enum.Enum):
    """How a task ended that returned nothing."""

    TIMEOUT = enum.auto()
    """Its child was ended for its processor time."""
    STALLED = enum.auto()
    """Its child was killed by the clock: it got too little processor time to end in either way."""
    DIED = enum.auto()
    """Its child died."""
    BROKEN = enum.auto()
    """The pool broke; it may have had nothing to do with this task."""


class Processes:
    """A forkserver's children, kept by pebble. Made by `start`."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool
        self._over = asyncio.Event()
        self._asked = 0

    @classmethod
    async def start(cls, count: int, modules: Sequence[str]) -> Processes | None:
        """Start so many children of the forkserver, each with these modules, and wait until one has answered.

        Returns:
            None where none answers: they may have been killed.

        Raises:
            Unavailable: they cannot work, and one says why (reason GRADING_POOL).
        """
        processes, first = await asyncio.to_thread(cls._make, count, modules)
        answer: str | Ending = Ending.BROKEN
        try:
            answer = await processes._outcome(first, START_SECONDS)
        finally:
            if answer:  # a child that can work has nothing to say
                await processes.stop()
        if isinstance(answer, Ending):
            return None
        if answer:
            raise Unavailable(f"the children that grade do not start: {answer}", reason=Reason.GRADING_POOL)
        return processes

    @classmethod
    def _make(cls, count: int, modules: Sequence[str]) -> tuple[Processes, Future[str]]:
        from pebble import ProcessPool

        context = multiprocessing.get_context("forkserver")
        pool = ProcessPool(max_workers=count, initializer=children.begin, initargs=(modules,), context=context)
        # The first task starts the processes.
        return cls(pool), pool.schedule(children.report, timeout=START_SECONDS)

    async def ask(self, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a child for at most so many seconds by the clock; what it returned, or how it ended.

        To be called for no more tasks at once than there are children: what waits inside pebble has no clock yet.
        """
        self._look_often(+1)
        try:
            return await self._outcome(self._pool.schedule(function, args=args, timeout=seconds), seconds)
        except RuntimeError:  # pebble knew already that it is broken
            return Ending.BROKEN
        finally:
            self._look_often(-1)

    async def stop(self) -> None:
        """End every child and thread; whoever waits is told that the pool broke. Idempotent."""
        if self._over.is_set():
            return
        self._over.set()
        await asyncio.to_thread(self._end)

    async def _outcome(self, task: Future[Any], seconds: float) -> Any:
        from pebble import ProcessExpired

        future, over = asyncio.wrap_future(task), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((future, over), timeout=seconds + STALL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                future.cancel()
                return Ending.BROKEN
            return future.result()
        except TimeoutError:
            return Ending.STALLED
        except ProcessExpired as error:
            return Ending.TIMEOUT if error.exitcode == children.OUT_OF_TIME else Ending.DIED
        except BrokenProcessPool:
            return Ending.BROKEN
        finally:
            over.cancel()

    def _look_often(self, change: int) -> None:
        """Have pebble look after its tasks often while there are any; idle workers, often many, do without."""
        from pebble.common.types import CONSTS

        self._asked += change
        CONSTS.sleep_unit = POLL_SECONDS if self._asked else IDLE_POLL_SECONDS

    def _end(self) -> None:
        self._pool.stop()
        self._pool.join()
