"""Places where programs are run: a fixed number, each with a sandbox for programs and one for tests.

A sandbox serves one run after the other while runs leave nothing in it. If a run did not end by itself, or wrote files,
its sandbox is ended with everything in it, and another takes its place. Nothing is started before the first program.

Sandboxes with an image are separate from those without. A place keeps those of the image that was requested last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Sequence

import structlog

from crucible_bridge.errors import BridgeError, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.grading.code.bubblewrap import Isolation
from crucible_worker.grading.code.has_images import HasImages
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import Left, Sandbox, SandboxChannel, SandboxLimits

__all__ = ["MAX_PLACES", "SandboxSlot", "SandboxSlots", "default_places"]

MAX_PLACES = 64
"""The most places of one worker."""
DEFAULT_MAX_PLACES = 4
"""The most places of a worker without the option: there may be many workers on a machine."""

_PROGRAMS, _TESTS = "programs", "tests"
_Kind = tuple[CodeImage | None, str]


def default_places() -> int:
    """Default number of places of a worker: one for each core, at most `DEFAULT_MAX_PLACES`."""
    return min(len(os.sched_getaffinity(0)), DEFAULT_MAX_PLACES)


class SandboxSlot:
    """Runs one program at a time, and its tests."""

    def __init__(self) -> None:
        self._sandboxes: dict[_Kind, Sandbox] = {}
        self._ended: dict[_Kind, Left] = {}
        self._image: CodeImage | None = None
        self._condemned = self._closed = False

    async def use(self, image: CodeImage | None) -> None:
        """Run what follows with the packages of an image, or without any."""
        self._image = image
        if image is not None:
            for kind in [kind for kind in self._sandboxes if kind[0] not in (None, image)]:
                await self._sandboxes.pop(kind).kill()

    async def prepare(self, *, tests: bool = False) -> None:
        """Start what is needed, so that no run pays for it.

        Raises:
            FailedPrecondition: sandboxes do not start here (reason NO_SANDBOX).
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        for name in (_PROGRAMS, _TESTS) if tests else (_PROGRAMS,):
            self._check_open()
            kind = self._image, name
            if kind not in self._sandboxes:
                directory = None if self._image is None else self._image.directory
                self._sandboxes[kind] = await Sandbox.start(Isolation.of_this_process(directory))
        if self._closed:  # meanwhile
            await self.discard()
            raise _closed()

    @contextlib.asynccontextmanager
    async def running(
        self, role: str, bounds: SandboxLimits, streams: Sequence[int] = ()
    ) -> AsyncIterator[SandboxChannel]:
        """A run in its sandbox, see `Sandbox.run`; the channel is closed at the end, which a program may ignore.

        Raises:
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        self._check_open()
        sandbox = self._sandboxes[self._image, _TESTS if role == "tests" else _PROGRAMS]
        channel = await sandbox.run(role, bounds, streams)
        try:
            yield channel
        finally:
            channel.close()

    async def program_left(self) -> Left | None:
        """How the program's process ended; None if it has not, or its sandbox ended first.

        Raises:
            Unavailable: the place is closed (reason GRADING_CLOSED).
        """
        self._check_open()
        kind = self._image, _PROGRAMS
        if kind not in self._ended and (left := await self._sandboxes[kind].settled()) is not None:
            self._ended[kind] = left
        return self._ended.get(kind)

    @property
    def lost(self) -> bool:
        """Whether a sandbox has ended by itself. No program can cause that: the machine did."""
        return any(sandbox.lost for sandbox in self._sandboxes.values())

    def condemn(self) -> None:
        """The run here has used up its time: `restore` does not wait for it."""
        self._condemned = True

    async def restore(self) -> None:
        """Prepare the place for the next program: nothing of the last one is left."""
        condemned, self._condemned = self._condemned, False
        for kind, sandbox in list(self._sandboxes.items()):
            left = self._ended.pop(kind, None)
            if left is None and not (sandbox.alive or condemned):
                left = await sandbox.settled()
            if not sandbox.alive or (left is not None and left.touched):
                del self._sandboxes[kind]
                await sandbox.kill()

    async def discard(self) -> None:
        """End its sandboxes; the next program has new ones."""
        while self._sandboxes:
            _, sandbox = self._sandboxes.popitem()
            await sandbox.kill()

    async def aclose(self) -> None:
        """End its sandboxes, for good."""
        self._closed = True
        await self.discard()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


class SandboxSlots(HasImages):
    """All places of a worker. Belongs to the event loop that uses it first.

    Args:
        count: how many; `default_places` if None.
        images: folders of packages that programs may import.
    """

    def __init__(self, count: int | None = None, images: Iterable[CodeImage] = ()) -> None:
        self.count = default_places() if count is None else count
        """How many."""
        if not 1 <= self.count <= MAX_PLACES:
            raise ValueError(f"{count} places, 1 to {MAX_PLACES} are accepted")
        super().__init__(images)
        self._places = [SandboxSlot() for _ in range(self.count)]
        self._free: asyncio.Queue[SandboxSlot] = asyncio.Queue()
        for place in self._places:
            self._free.put_nowait(place)
        self._restoring: set[asyncio.Task[None]] = set()
        self._closed = False
        self._log = structlog.get_logger("crucible_worker.grading")

    @contextlib.asynccontextmanager
    async def place(self, image: CodeImage | None = None) -> AsyncIterator[SandboxSlot]:
        """A place for one caller alone, with an image's packages or none; the longest wait is served first.

        Raises:
            Unavailable: the places are closed (reason GRADING_CLOSED).
        """
        place = await self._free.get()
        try:
            if self._closed:
                raise _closed()
            await place.use(image)
            yield place
            # Sandboxes may have been ended during the run: its result then says nothing about the program.
            if self._closed:
                raise _closed()
        finally:
            # The caller does not wait for it, and its cancellation does not stop it.
            task = asyncio.create_task(self._restored(place))
            self._restoring.add(task)
            task.add_done_callback(self._restoring.discard)

    async def aclose(self) -> None:
        """End every sandbox; callers that wait for a place are refused. Idempotent."""
        self._closed = True
        while self._restoring:
            await asyncio.wait(self._restoring)
        await asyncio.gather(*(place.aclose() for place in self._places))

    async def _restored(self, place: SandboxSlot) -> None:
        try:
            await place.restore()
        except (OSError, BridgeError) as error:
            self._log.error("sandbox_not_restored", reason=str(error))
            await place.discard()
        finally:
            self._free.put_nowait(place)


def _closed() -> Unavailable:
    return Unavailable("this worker grades no more", reason=Reason.GRADING_CLOSED)
