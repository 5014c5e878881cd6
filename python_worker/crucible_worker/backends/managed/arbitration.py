"""Who may use a server that serves one thing at a time, and who a GPU that holds one server at a time.

Requests for the same thing share a server, others wait.

A change costs a load. It is made when what is served has been idle for a moment, or when others have waited for a slice
of time, which grows with what the last change took: then no further request gets in, and those under way end first.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from crucible_worker.backends.openai.connection import closed

__all__ = ["IDLE_SECONDS", "SLICE_SECONDS", "Claimant", "Claims", "InUse", "ServerLock"]

# Which deployment has which GPU: one that is idle gives its GPUs to another one that needs one of them.
#
#     managed:vllm/a?devices=0      and then      managed:vllm/b?devices=0,1
#
# are two deployments. Both at once would not fit on GPU 0. GPUs that no reference names are not known here.


class Claimant(Protocol):
    """A deployment, as others that need its GPUs see it."""

    @property
    def told(self) -> str:
        """What it is, in words."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing uses it."""
        ...

    async def until_idle(self) -> None:
        """Wait until nothing uses it."""

    async def give_up(self) -> None:
        """End its processes; the next request starts them again."""


class InUse(Exception):
    """Raised when a GPU does not become free in time; the text says who has it."""


class Claims:
    """The GPUs of one backend, each with the deployment that has it."""

    def __init__(self) -> None:
        self._owners: dict[str, Claimant] = {}
        self._claiming = asyncio.Lock()

    async def claim(self, claimant: Claimant, devices: Sequence[str], seconds: float) -> None:
        """Have all of these GPUs, once their present owners are idle and have given them up.

        Args:
            claimant: who wants them.
            devices: each one GPU.
            seconds: how long the owners are waited for.

        Raises:
            InUse: an owner was not idle in time.
        """
        # An owner that changes its checkpoint must not wait for one that waits for it to be idle.
        if self._has(claimant, devices):
            return
        async with self._claiming:
            for device in devices:
                while (owner := self._owners.get(device, claimant)) is not claimant:
                    await self._freed(owner, device, seconds)
            self._owners.update(dict.fromkeys(devices, claimant))

    def _has(self, claimant: Claimant, devices: Sequence[str]) -> bool:
        return all(self._owners.get(device) is claimant for device in devices)

    async def _freed(self, owner: Claimant, device: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await owner.until_idle()
        except TimeoutError:
            raise InUse(f"device {device!r} is in use by {owner.told}") from None
        if not owner.idle:  # a request came in between
            return
        # From here on the owner itself has to claim them again.
        for each in [each for each, its in self._owners.items() if its is owner]:
            del self._owners[each]
        await owner.give_up()


IDLE_SECONDS = 0.5
"""Without a request for so long, what is served is idle: an evaluation has another one at once."""
SLICE_SECONDS = 30.0
"""How long others wait at least while what is served is busy."""
CHANGES_IN_A_SLICE = 10.0
"""A slice is so many times as long as the last change, so that changes take at most a tenth of the time."""

K = TypeVar("K", bound=Hashable)


class ServerLock(Generic[K]):
    """Turns at one server.

    Args:
        change: makes the server serve something else; while it runs, no request does.
        clock: seconds that never decrease.
    """

    def __init__(self, change: Callable[[K], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._change = change
        self._clock = clock
        self._served: K | None = None
        self._active = 0
        self._since = self._last = clock()
        self._slice = SLICE_SECONDS
        self._changing: tuple[K, asyncio.Task[None]] | None = None
        # By the time of the first that waits.
        self._waiting: collections.OrderedDict[K, int] = collections.OrderedDict()
        self._news = asyncio.Event()

    @property
    def served(self) -> K | None:
        """What is served; None before the first change, and after one that failed."""
        return self._served

    @contextlib.asynccontextmanager
    async def of(self, key: K) -> AsyncIterator[None]:
        """Use the server while it serves something.

        Raises:
            Exception: what the change to it raised.
            Unavailable: this was closed during the change.
        """
        await self._enter(key)
        try:
            yield
        finally:
            self._active -= 1
            self._last = self._clock()
            self._tell()

    @property
    def idle(self) -> bool:
        """Whether nothing uses it, waits for it, or has used it for a moment."""
        unused = self._changing is None and not self._active and not self._waiting
        return unused and self._clock() - self._last >= IDLE_SECONDS

    async def until_idle(self) -> None:
        """Wait until it is idle."""
        while not self.idle:
            await self._until_news()

    def forget(self) -> None:
        """What is served has to be made served again, even for those that want the same."""
        self._served = None
        self._tell()

    async def aclose(self) -> None:
        """End a change that is under way."""
        if self._changing is not None:
            _, task = self._changing
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _enter(self, key: K) -> None:
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            while True:
                if self._changing is None and self._served == key and not self._is_over(key):
                    break
                if self._changing is None and not self._active and self._may_change(key):
                    task = asyncio.create_task(self._make(key), name="weights of a managed server")
                    task.add_done_callback(lambda done: done.cancelled() or done.exception())
                    self._changing = (key, task)
                if self._changing is not None and self._changing[0] == key:
                    # If this request is cancelled, the change continues: half of it would be neither.
                    await self._made(self._changing[1])
                    continue
                await self._until_news()
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                self._tell()
        self._active += 1

    async def _made(self, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `aclose`; who waits was not cancelled
                raise closed() from None
            raise

    def _is_over(self, key: K) -> bool:
        """Whether others have waited for a slice of the time of what is served."""
        others = any(other != key for other in self._waiting)
        return others and self._clock() - self._since > self._slice

    def _may_change(self, key: K) -> bool:
        """Whether it is now time to serve something else, and the turn of this one."""
        first = next((other for other in self._waiting if other != self._served), None)
        if first != key:
            return False
        idle = self._clock() - self._last >= IDLE_SECONDS and self._served not in self._waiting
        return self._served is None or idle or self._clock() - self._since > self._slice

    async def _make(self, key: K) -> None:
        began = self._clock()
        try:
            self._served = None
            await self._change(key)
            self._served = key
        finally:
            self._since = self._last = self._clock()
            self._slice = max(SLICE_SECONDS, CHANGES_IN_A_SLICE * (self._since - began))
            self._changing = None
            self._tell()

    async def _until_news(self) -> None:
        # A time may pass without an event: that something is idle, or that its slice is over.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS / 2):
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
