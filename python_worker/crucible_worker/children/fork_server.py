"""A process that has loaded what its children need, and is forked for each of them.

It runs nothing except its loading, so it reads orders at once. An order on a control socket carries the socket of a new
child; news on it report that the child has started, and how it ended. When a control socket closes, the children that
were started on it end, each with its group. When the first one closes, the server ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from crucible_bridge.errors import BridgeError
from crucible_worker.children.frames import HEADER
from crucible_worker.children.lifetime import die_with
from crucible_worker.children.messages import error_to_map, pack, unpack

__all__ = ["MAX_PACKET_BYTES", "ForkServer", "join", "packet", "packet_from", "refuse"]

MAX_PACKET_BYTES = 65_536
"""Of an order, and of news."""

Run = Callable[[socket.socket, str], object]


def packet(**message: Any) -> bytes:
    """A message for a control socket, which keeps messages apart by itself."""
    return pack(message, MAX_PACKET_BYTES)[HEADER.size :]


def packet_from(data: bytes) -> dict[str, Any]:
    """What `packet` was given."""
    return unpack(data)


def join(server: socket.socket) -> socket.socket:
    """One more control socket of a server, for a client in another event loop.

    Args:
        server: the first control socket.

    Raises:
        OSError: the server is gone.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            socket.send_fds(server, [packet(op="join")], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
    return ours


def refuse(control: socket.socket, error: BridgeError) -> NoReturn:
    """Report to the clients why there is no server, and end."""
    news = packet(op="failed", number=0, error=error_to_map(error))
    with contextlib.suppress(ConnectionError):
        control.send(news)
    control.settimeout(0)
    with contextlib.suppress(OSError):
        while (received := socket.recv_fds(control, MAX_PACKET_BYTES, 1))[0]:
            for fd in received[1]:
                with socket.socket(fileno=fd) as other:
                    other.send(news)
    os._exit(0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Started:
    control: socket.socket
    number: int
    pid: int


class ForkServer:
    """The server itself, in a process that has one thread.

    Args:
        control: its first control socket, a SOCK_SEQPACKET.
        run: what a child does with its socket and its name; the child ends when it returns or raises.
        prepare: called with the name of a child before that is forked.
        spawn: starts a child in another way, where the process has more than one thread; from the descriptor of the
            child's socket to its process id.
    """

    def __init__(
        self,
        control: socket.socket,
        run: Run,
        *,
        prepare: Callable[[str], object] = lambda name: None,
        spawn: Callable[[int], int] | None = None,
    ) -> None:
        self._first = control
        self._controls = {control.fileno(): control}
        self._run, self._prepare, self._spawn = run, prepare, spawn
        self._started: dict[int, _Started] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # Loaded code may ignore SIGCHLD; the exit statuses of our children would then be lost.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def serve(self) -> NoReturn:
        """Serve orders until the first control socket is closed."""
        self._tell(self._first, packet(op="ready", number=0))
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._controls:
                    self._obey(self._controls[descriptor])
                elif descriptor in self._started:
                    self._reap(descriptor)

    def _obey(self, control: socket.socket) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 1)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            self._leave(control)
            return
        order = packet_from(data)
        if not fds:  # this process is out of descriptors; a client that joins reads the end of its socket
            if order["op"] != "join":
                self._refuse(control, order["number"], os.strerror(errno.EMFILE))
        elif order["op"] == "join":
            joined = socket.socket(fileno=fds[0])
            self._controls[joined.fileno()] = joined
            self._poll.register(joined, select.POLLIN)
            self._tell(joined, packet(op="ready", number=0))
        else:
            self._start(control, order["number"], order["name"], fds[0])

    def _leave(self, control: socket.socket) -> None:
        for started in self._started.values():
            if control in (started.control, self._first):
                _kill(started.pid)
        if control is self._first:
            os._exit(0)
        self._poll.unregister(control)
        del self._controls[control.fileno()]
        control.close()

    def _start(self, control: socket.socket, number: int, name: str, end: int) -> None:
        self._prepare(name)
        try:
            pid = self._forked(name, end) if self._spawn is None or _is_single_threaded() else self._spawn(end)
        except OSError as error:  # there is no room for one more; running children are not affected
            self._refuse(control, number, error.strerror)
            return
        finally:
            os.close(end)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            _kill(pid)
            os.waitpid(pid, 0)
            self._refuse(control, number, error.strerror)
            return
        self._started[pidfd] = _Started(control, number, pid)
        self._poll.register(pidfd, select.POLLIN)
        self._tell(control, packet(op="started", number=number), pidfd)

    def _forked(self, name: str, end: int) -> int:
        server = os.getpid()
        pid = os.fork()
        if pid:
            # Here and in the child: whichever comes first, the group exists before anything kills it.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            return pid
        status = 1
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            die_with(server)
            for descriptor in (*self._controls, *self._started):
                os.close(descriptor)
            if self._on_child is not None:  # else it is none of Python's
                signal.signal(signal.SIGCHLD, self._on_child)
            self._run(socket.socket(fileno=end), name)
            status = 0
        except ConnectionError:  # the client has gone
            status = 0
        except Exception:  # what the child ran: its owner reads it in the log, and receives exit status 1
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self, descriptor: int) -> None:
        started = self._started.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        # It is not reaped yet, so no other process has its id: killing its group ends what it has left.
        _kill(started.pid)
        _, status = os.waitpid(started.pid, 0)
        news = packet(op="ended", number=started.number, status=os.waitstatus_to_exitcode(status))
        self._tell(started.control, news)

    def _refuse(self, control: socket.socket, number: int, why: str | None) -> None:
        self._tell(control, packet(op="not started", number=number, why=why))

    def _tell(self, control: socket.socket, news: bytes, *fds: int) -> None:
        if control.fileno() >= 0:
            with contextlib.suppress(ConnectionError):  # the client is gone, as its next order says
                socket.send_fds(control, [news], fds)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _is_single_threaded() -> bool:
    return len(os.listdir("/proc/self/task")) == 1
