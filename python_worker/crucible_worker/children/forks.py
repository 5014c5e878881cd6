"""A client of a fork server in an event loop, with its children. The server itself is in `fork_server`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from crucible_worker.children.fork_server import MAX_PACKET_BYTES, packet, packet_from
from crucible_worker.children.messages import error_from_map
from crucible_worker.children.process import Process

__all__ = ["Fork", "Forks", "NotForked"]


_END_SECONDS = 5.0  # for the server to kill what it has forked, and to end


class NotForked(Exception):
    """The server could not fork one more child; the message says why."""


class Fork:
    """A child of the server, and this end of its socket."""

    def __init__(self, end: socket.socket, pidfd: int) -> None:
        self.end = end
        """Blocking, until a channel uses it."""
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """Its exit status; None if the server ended before the child was reaped."""
        self._pidfd = pidfd

    @property
    def alive(self) -> bool:
        """Whether it runs; the news of its end may still be on its way."""
        if self.ended.done():
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def kill(self) -> None:
        """Kill it; the server then kills its group, and reports its end."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def has_ended(self, status: int | None) -> None:
        """Record its end."""
        if not self.ended.done():
            os.close(self._pidfd)
            self.ended.set_result(status)


class Forks:
    """Children of a fork server; belongs to the running event loop.

    Args:
        control: a control socket of the server.
        died: makes the error of waiting callers when the server ends; from the server's exit status, None if that is
            not known.
        process: the server, if it belongs to this client.
    """

    def __init__(
        self, control: socket.socket, died: Callable[[int | None], Exception], process: Process | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, self._process, self._died = control, process, died
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._heard)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._starting: dict[int, tuple[socket.socket, asyncio.Future[Fork]]] = {}
        self._forks: dict[int, Fork] = {}
        self._last_number = 0
        self.alive = True
        """Whether the server runs."""
        self._ending: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = None if process is None else self._loop.create_task(self._watched(process))

    async def ready(self) -> None:
        """Wait until the server has loaded what it loads.

        Raises:
            BridgeError: what the server says of it.
            Exception: what `died` makes, if the server ended.
        """
        await asyncio.shield(self._ready)

    async def start(self, name: str = "") -> Fork:
        """Have a child forked.

        Raises:
            NotForked: the system refuses one more.
            Exception: as of `ready`.
        """
        await self.ready()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise NotForked(error.strerror) from error
        self._last_number += 1
        number = self._last_number
        future: asyncio.Future[Fork] = self._loop.create_future()
        self._starting[number] = ours, future
        try:
            with theirs:
                self._order(packet(op="start", number=number, name=name), theirs.fileno())
            return await asyncio.shield(future)
        except BaseException:
            # The child, if there will be one, ends with its socket.
            ours.close()
            raise

    def close(self) -> None:
        """Close the connection: the children started here end, and the server too if it belongs to this client."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        if self._process is None:  # there will be no news
            self._fail_all(None)
        else:
            self._deadline = self._loop.call_later(_END_SECONDS, self._process.kill)

    def kill(self) -> None:
        """Kill the server if it belongs to this client; its children end with it."""
        self.alive = False
        if self._process is not None:
            self._process.kill()

    def _order(self, order: bytes, fd: int) -> None:
        if self._control.fileno() < 0:
            raise self._died(None)
        try:
            socket.send_fds(self._control, [order], [fd])
        except (BlockingIOError, ConnectionError):  # the server no longer reads
            self._end()

    def _heard(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, MAX_PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except ConnectionError:
            data, fds = b"", []
        if not data:
            self._end()
            return
        self._take(packet_from(data), fds)

    def _take(self, news: dict[str, Any], fds: list[int]) -> None:
        ours, future = self._starting.pop(news["number"], (None, None))
        match news["op"]:
            case "ready":
                if not self._ready.done():
                    self._ready.set_result(None)
            case "failed":
                self._fail(self._ready, error_from_map(news["error"]))
            case "started":
                assert ours is not None
                assert future is not None
                if not fds:  # this process is out of descriptors; the child ends with its socket
                    ours.close()
                    self._fail(future, NotForked(os.strerror(errno.EMFILE)))
                    return
                fork = self._forks[news["number"]] = Fork(ours, fds[0])
                future.set_result(fork)
            case "not started":
                self._fail(future, NotForked(news["why"]))
            case _:
                fork = self._forks.pop(news["number"], None)
                if fork is not None:
                    fork.has_ended(news["status"])

    def _end(self) -> None:
        """Handle a closed control socket: the server ends soon too."""
        if self._ending is None:
            self._ending = self._loop.create_task(self._ended())

    async def _watched(self, process: Process) -> None:
        # Whatever the server has started may hold the control socket open.
        await process.ended()
        self._end()

    async def _ended(self) -> None:
        self.close()
        if self._process is not None:
            self._fail_all(await self._process.end())
        if self._deadline is not None:
            self._deadline.cancel()

    def _fail_all(self, status: int | None) -> None:
        self.alive = False
        self._fail(self._ready, self._died(status))
        for _, future in self._starting.values():
            self._fail(future, self._died(status))
        self._starting.clear()
        for fork in self._forks.values():
            fork.has_ended(status)
        self._forks.clear()

    def _fail(self, future: asyncio.Future[Any] | None, error: Exception) -> None:
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # there may be no caller that waits
