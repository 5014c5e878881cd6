"""Child processes as their parent sees them, at the other end of a socket: started, asked, killed and reaped.

A child leads a process group, which is killed whole, with everything that the child has started. It dies with its
parent (`lifetime`). It is always reaped, so its id belongs to no other process while it can still be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from crucible_worker.children.frames import HEADER, MAX_FRAME_BYTES, frame, length_of, receive
from crucible_worker.children.lifetime import begin, limit

__all__ = [
    "Channel",
    "Process",
    "Questions",
    "Unanswered",
    "answer_once",
    "ask_once",
    "bare_environment",
    "ending_of",
    "passed_variables",
]

# The environment variables that processes of foreign code get from the worker.

_PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def passed_variables(*further: str) -> dict[str, str]:
    """The variables for such a process: none of them is ever a secret, except perhaps those of `further`."""
    return {name: os.environ[name] for name in (*_PASSED, *further) if name in os.environ}


# One end of a socket to another process, in an event loop: frames out and in, and questions that wait for answers.


class Channel:
    """Frames to and from another process. Made by `over`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Use a socket, which is closed with the channel."""
        end.setblocking(False)
        try:
            return cls(*await asyncio.open_unix_connection(sock=end))
        except BaseException:
            end.close()
            raise

    def send(self, frame: bytes) -> None:
        """Send a frame without waiting. Nothing is sent to a process that is gone; the next `receive` reports that."""
        if not self._writer.is_closing():
            self._writer.write(frame)

    async def drained(self) -> None:
        """Wait until what was sent is on its way, or the other process is gone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self, max_bytes: int = MAX_FRAME_BYTES) -> bytes | None:
        """The next body; None at the end, within a frame too.

        Raises:
            TooLong: it exceeds `max_bytes`.
        """
        try:
            length = length_of(await self._reader.readexactly(HEADER.size), max_bytes)
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def end_input(self) -> None:
        """Treat what has arrived as the whole input, even if a process still has the other end open."""
        with contextlib.suppress(OSError):
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def fail(self, error: Exception) -> None:
        """Have `receive` raise an error."""
        self._reader.set_exception(error)

    def close(self) -> None:
        """Close it; what was sent still leaves."""
        self._writer.close()

    def abort(self) -> None:
        """Close it at once."""
        self._writer.transport.abort()


class Questions:
    """Questions on a channel; each has an id, which its answer repeats."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, frame_of: Callable[[int], bytes]) -> Any:
        """Send the frame that is made for a new id, and wait for its answer; raises what `fail` is given."""
        self._last_id += 1
        identity = self._last_id
        frame = frame_of(identity)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            self._channel.send(frame)
            await self._channel.drained()
            return await future
        finally:
            del self._waiting[identity]

    def answer(self, identity: Any, value: Any) -> None:
        """Hand an answer to its caller, if there still is one."""
        if (future := self._open(identity)) is not None:
            future.set_result(value)

    def fail(self, identity: Any, error: Exception) -> None:
        """Have a caller raise an error."""
        if (future := self._open(identity)) is not None:
            future.set_exception(error)

    def fail_all(self, error_of: Callable[[], Exception]) -> None:
        """Have every caller raise a separate error: there will be no more answers."""
        for identity in list(self._waiting):
            self.fail(identity, error_of())

    def _open(self, identity: Any) -> asyncio.Future[Any] | None:
        future = self._waiting.get(identity)
        return None if future is None or future.done() else future


_LOOK_SECONDS = 0.05  # between two looks at a process that no descriptor is free to wait for

# A loop that ends before its children receives no notice of their end: those that nothing refers to any more are reaped
# by a later start. One that still has an owner is left alone: the owner may wait for it at this moment, in any thread.
_abandoned: list[subprocess.Popen[bytes]] = []


def _abandon(popen: subprocess.Popen[bytes], pidfd: int) -> None:
    os.close(pidfd)
    _abandoned.append(popen)


def ending_of(code: int) -> str:
    """An exit status in words."""
    return f"signal {-code}" if code < 0 else f"exit status {code}"


class Process:
    """A running or ended child. Made by `start`."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self._popen = popen
        try:
            self._pidfd = os.pidfd_open(popen.pid)
        except OSError:
            os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
            raise
        self._abandon = weakref.finalize(self, _abandon, popen, self._pidfd)
        self._abandon.atexit = False

    @classmethod
    def start(
        cls,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        kind: socket.SocketKind = socket.SOCK_STREAM,
        cwd: Path | None = None,
        logs: bool = False,
    ) -> tuple[Process, socket.socket]:
        """Start a module, which begins with `entry.begin`; and this process's end of the socket, which blocks.

        Args:
            module: its name.
            arguments: of its command line, after those that `entry.begin` reads itself.
            environment: of the child, whole.
            kind: of the socket.
            cwd: the child's working directory.
            logs: whether what the child prints goes to this process's stderr; else it is discarded.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with theirs:
            number = theirs.fileno()
            # -P: the directory that this process happens to be in is no place to import from.
            command = [sys.executable, "-P", "-m", module, f"--parent={os.getpid()}", f"--socket={number}", *arguments]
            try:
                return cls.spawn(command, environment, (number,), cwd=cwd, output=2 if logs else None), ours
            except BaseException:
                ours.close()
                raise

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        fds: Sequence[int],
        *,
        cwd: Path | None = None,
        output: int | None = None,
        errors: int | IO[bytes] | None = None,
        user: int | None = None,
    ) -> Process:
        """Start any command with these file descriptors, and no input.

        Args:
            command: the command.
            environment: of the child; this process's if None.
            fds: are open in the child under the same numbers.
            cwd: the child's working directory.
            output: where stdout goes; nowhere if None.
            errors: where stderr goes; to `output` if None.
            user: id of the user that it runs as, with only the group of the same number; as this process if None.

        Raises:
            OSError: it cannot be started.
        """
        for popen in tuple(_abandoned):
            if popen.poll() is not None:
                with contextlib.suppress(ValueError):  # another thread was first
                    _abandoned.remove(popen)
        out = subprocess.DEVNULL if output is None else output
        return cls(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out if errors is None else errors,
                env=environment,
                cwd=cwd,
                pass_fds=fds,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                # A separate session: a terminal's Ctrl-C does not reach it.
                start_new_session=True,
            )
        )

    def kill(self) -> None:
        """Kill it, and what it has started in its group. It remains to be reaped."""
        # It is not reaped yet, so no other process or group has its id.
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def ends(self, until: float) -> bool:
        """Whether it ends before a time of `time.monotonic`; blocks, and leaves it to be reaped."""
        if self._popen.returncode is not None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    async def ended(self) -> None:
        """Wait for its end; it remains to be reaped."""
        if self._popen.returncode is not None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            own = os.dup(self._pidfd)  # a loop has one reader for each descriptor
        except OSError:  # no descriptor is free
            while not self.ends(time.monotonic()):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(_LOOK_SECONDS)
            return
        loop.add_reader(own, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(own)
            os.close(own)

    def reap(self) -> int:
        """Kill what is left of it and of its group, and wait for it; its exit status. Idempotent."""
        self.kill()
        code = self._popen.wait()
        if self._abandon.detach() is not None:  # not yet reaped, by another thread either
            os.close(self._pidfd)
        return code

    async def end(self) -> int:
        """Kill it with its group, and wait until it is gone; its exit status."""
        self.kill()
        await self.ended()
        return self.reap()


# Children that answer one question (`ask_once`): they read foreign input, or wait for a hub, and are killed at their
# limits.

_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH")


class Unanswered(Exception):
    """A child ended without an answer, or was killed: it took too much time or memory."""


def bare_environment() -> dict[str, str]:
    """The minimal environment of a child, without the rest of this process's environment."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


async def ask_once(module: str, question: bytes, *, environment: Mapping[str, str], logs: bool = False) -> bytes:
    """Start a child that calls `answer_once`, and return its answer. It is gone afterwards, also if this is cancelled.

    Args:
        module: what it runs.
        question: sent to the child.
        environment: the child's.
        logs: whether what it prints goes to this process's stderr.

    Raises:
        Unanswered: there is no answer.
    """
    process, end = Process.start(module, environment=environment, logs=logs)
    try:
        channel = await Channel.over(end)
        try:
            channel.send(frame(question))
            answer = await channel.receive()
        finally:
            channel.abort()
    finally:
        await process.end()
    if answer is None:
        raise Unanswered
    return answer


def answer_once(
    module: str,
    answer: Callable[[bytes], bytes],
    *,
    cpu_seconds: int | None = None,
    memory_bytes: int | None = None,
) -> None:
    """Answer the question, in the child.

    Args:
        module: what it runs.
        answer: from the question to the answer.
        cpu_seconds: after which the kernel ends it.
        memory_bytes: of address space that it may have.
    """
    _, end = begin(module, __doc__)
    if cpu_seconds is not None:
        limit(resource.RLIMIT_CPU, cpu_seconds)
    if memory_bytes is not None:
        limit(resource.RLIMIT_AS, memory_bytes)
    question = receive(end)
    if question is not None:
        end.sendall(frame(answer(question)))
