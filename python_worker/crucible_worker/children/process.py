"""A child process as its parent sees it: a module of this package at the other end of a socket.

It leads a process group, which is killed whole, with everything that the child has started. The child dies with its
parent (`entry`). It is always reaped, so its id belongs to no other process while it can still be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["Process", "ending_of"]

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
