"""One sandbox: a zygote inside bubblewrap, and one run in it at a time."""

from __future__ import annotations

import array
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any, Self

from crucible_worker.children.process import Channel as Frames
from crucible_worker.children.process import Process
from crucible_worker.grading.code.bubblewrap import Isolation, advice, no_sandbox, sources
from crucible_worker.grading.code.inside.frames import MAX_ORDER_BYTES, READY, pack
from crucible_worker.util.error_reporter import SHORTAGES
from crucible_worker.util.parsing import uncollected

__all__ = ["LARGE_BYTES", "START_SECONDS", "Left", "Sandbox", "SandboxChannel", "SandboxLimits"]

START_SECONDS = 10.0
"""Time for a sandbox to be ready; it takes a tenth of a second on an idle machine."""

SETTLE_SECONDS = 0.25
"""Time for a child to end after its last message; then it is killed."""

LARGE_BYTES = 64 * 1024
"""Messages from here on would block the event loop for milliseconds."""

KILL_SECONDS = 2.0
"""Time for a sandbox to be gone; it takes milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits of a run, which the kernel enforces."""

    memory_bytes: int
    """Address space beyond what Python takes."""
    cpu_seconds: int
    """Processor time of all its threads together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How a run's process ended."""

    code: int
    """Its exit status; below zero the signal that killed it."""
    touched: bool
    """Whether it changed the writable folder."""

    @property
    def told(self) -> str:
        """The end in words."""
        if self.code >= 0:
            return f"exited with {self.code}"
        known = {number.value: number.name for number in signal.Signals}
        return f"was killed by {known.get(-self.code, f'signal {-self.code}')}"


class SandboxChannel:
    """The worker's end of a run's channel. The program writes what comes out of it; only its size is checked."""

    def __init__(self, channel: Frames) -> None:
        self._channel = channel
        self.size = 0
        """Bytes of the last message."""

    @property
    def large(self) -> bool:
        """Whether the last message is so large that a thread must process it."""
        return self.size >= LARGE_BYTES

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """A channel over a socket, which is closed with the channel."""
        return cls(await Frames.over(end))

    def send(self, message: Any) -> None:
        """Send without waiting; only an answer shows whether it was read."""
        self._channel.send(pack(message))

    async def receive(self, max_bytes: int) -> Any:
        """The next message; None if none comes any more, or it is not valid.

        Raises:
            ValueError: it is longer than `max_bytes`.
        """
        data = await self._channel.receive(max_bytes)
        if data is None:
            return None
        try:
            self.size = len(data)
            return await asyncio.to_thread(_parsed, data) if self.large else _parsed(data)
        except (ValueError, RecursionError):
            return None

    def close(self) -> None:
        """Close the channel: nothing more will be sent."""
        self._channel.close()


class Sandbox:
    """A zygote that waits for orders, and whose whole process namespace ends with it."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self._process, self._control = process, control
        self._busy = False
        self.lost = False
        """Whether it has ended without `kill`."""

    @classmethod
    async def start(cls, wall: Isolation) -> Self:
        """Start one and wait until it is ready.

        Raises:
            FailedPrecondition: it does not start (reason NO_SANDBOX); the message says what to do.
            OSError: the system has no room at the moment.
        """
        control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with contextlib.ExitStack() as files, inner, contextlib.ExitStack() as unless_spawned:
            unless_spawned.callback(control.close)
            told = files.enter_context(_memory_file(b""))
            given = {path: files.enter_context(_memory_file(data)) for path, data in sources().items()}
            words = wall.command(inner.fileno(), {path: file.fileno() for path, file in given.items()})
            try:
                fds = (inner.fileno(), *(file.fileno() for file in given.values()))
                process = Process.spawn(words, {}, fds, errors=told, user=wall.runs_as)
            except OSError as error:
                if error.errno in SHORTAGES:
                    raise
                raise no_sandbox(advice(str(error))) from error
            unless_spawned.pop_all()
            inner.close()
            sandbox = cls(process, control)
            try:
                await sandbox._ready()
            except BaseException as error:
                await sandbox.kill()
                if not isinstance(error, _NotReady):
                    raise
                told.seek(0)
                said = told.read().decode(errors="replace")
                raise no_sandbox(advice(said or str(error))) from None
        return sandbox

    @property
    def alive(self) -> bool:
        """Whether it can take an order."""
        return self._control.fileno() >= 0 and not self._busy

    async def run(self, role: str, bounds: SandboxLimits, streams: Sequence[int] = ()) -> SandboxChannel:
        """Begin a run: one child, which communicates over the channel.

        Args:
            role: "program", "script" or "tests".
            bounds: its limits.
            streams: standard input and output of a script.
        """
        assert not self._busy
        ours, theirs = socket.socketpair()
        order = json.dumps({"role": role, **dataclasses.asdict(bounds)}).encode()
        assert len(order) <= MAX_ORDER_BYTES
        fds = array.array("i", (theirs.fileno(), *streams))
        with theirs:
            self._busy = True
            with contextlib.suppress(OSError):  # a zygote that is gone: the channel ends at once
                self._control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        return await SandboxChannel.over(ours)

    async def settled(self, seconds: float = SETTLE_SECONDS) -> Left | None:
        """Wait for the end of the run; None if it has not ended by itself, or the zygote has gone."""
        try:
            async with asyncio.timeout(seconds):
                answer = await asyncio.get_running_loop().sock_recv(self._control, MAX_ORDER_BYTES)
        except TimeoutError:
            return None
        except OSError:
            answer = b""
        if not answer:
            self.lost = True
            return None
        told = json.loads(answer)
        self._busy = False
        return Left(code=told["code"], touched=told["touched"])

    async def kill(self) -> None:
        """End the sandbox with all that runs in it, and wait until it is gone. Idempotent."""
        if self._control.fileno() < 0:
            return
        # This ends the zygote; it is the init of its namespace, so the kernel ends everything else there.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILL_SECONDS):
                    await self._process.ended()
            await self._process.end()
        finally:
            self._control.close()

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await asyncio.get_running_loop().sock_recv(self._control, MAX_ORDER_BYTES)
        except TimeoutError:
            raise _NotReady(f"it was not ready within {START_SECONDS:g} s") from None
        if said != READY:
            raise _NotReady("")


def _parsed(data: bytes) -> Any:
    with uncollected(len(data)):
        return json.loads(data, parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class _NotReady(Exception):
    """The zygote did not start."""


def _memory_file(data: bytes) -> Any:
    """A file without a name, for another process to read."""
    file = os.fdopen(os.memfd_create("sandbox"), "w+b", buffering=0)
    file.write(data)
    file.seek(0)
    return file
