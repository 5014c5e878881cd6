"""Children of the host: forked from a process that has imported transformers, and has done nothing else.

An import of transformers takes seconds and 250 MB, a fork of the importer milliseconds and little memory. The host
itself cannot fork: by then it has threads.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from crucible_worker.lifetime import die_with

__all__ = ["Child", "ForkServer", "ForkServerEnded", "import_architecture"]

_MAX_NAME_BYTES = 1_000


class ForkServerEnded(Exception):
    """There is no fork server any more: only another host gets a new one."""


class Child:
    """A forked process, and this end of its socket."""

    def __init__(self, endpoint: socket.socket, pidfd: int) -> None:
        self.endpoint = endpoint
        """Blocking; a child ends at the end of its input."""
        self.pidfd = pidfd
        """Signals sent by it reach this process and no later one of the same number."""

    def close(self) -> None:
        """Let go of it; it ends by itself if it still runs and reads."""
        self.endpoint.close()
        os.close(self.pidfd)


class ForkServer:
    """Forks children that run one function. It has to be made by the main thread, before there are other threads.

    Args:
        run: what a child does with its end of the socket; the child ends when it returns or raises.
        prepare: called with the name that a child is forked for, before it is forked.
    """

    def __init__(
        self, run: Callable[[socket.socket], None], prepare: Callable[[str], None] = lambda name: None
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if os.fork() == 0:
            _end_after(lambda: _serve(theirs, parent, run, prepare))
        theirs.close()

    def fork(self, name: str) -> Child:
        """A new child, prepared for a name. Called by one thread at a time.

        Raises:
            ForkServerEnded: it was killed, or could not fork.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            told = name.encode(errors="replace")[:_MAX_NAME_BYTES]
            try:
                socket.send_fds(self._control, [told or b" "], [theirs.fileno()])
                fds = socket.recv_fds(self._control, 1, 1)[1]
            except ConnectionError:
                fds = []
        if not fds:
            ours.close()
            raise ForkServerEnded
        return Child(ours, fds[0])


def _serve(
    control: socket.socket, parent: int, run: Callable[[socket.socket], None], prepare: Callable[[str], None]
) -> None:
    die_with(parent)
    # The pipes to the worker above all: their ends must be the host's alone.
    number = control.fileno()
    os.closerange(3, number)
    os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
    while True:
        name, fds, _, _ = socket.recv_fds(control, _MAX_NAME_BYTES, 1)
        if not name:
            return
        _reap()
        prepare(name.decode(errors="replace"))
        child = _fork(control, socket.socket(fileno=fds[0]), run)
        pidfd = os.pidfd_open(child)
        socket.send_fds(control, [b"."], [pidfd])
        os.close(pidfd)


def _fork(control: socket.socket, endpoint: socket.socket, run: Callable[[socket.socket], None]) -> int:
    parent = os.getpid()

    def be_child() -> None:
        die_with(parent)
        control.close()
        run(endpoint)

    if (child := os.fork()) == 0:
        _end_after(be_child)
    endpoint.close()
    return child


def _end_after(function: Callable[[], None]) -> None:
    """Call it, and end the process: a forked one has nothing of its parent to clean up."""
    status = 1
    try:
        function()
        status = 0
    finally:
        os._exit(status)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def import_architecture(model_type: str) -> None:
    """Import once what every child of an architecture would import."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    # A type that the library does not know, or cannot import, is refused by the child, which says why.
    with contextlib.suppress(Exception):
        MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]]
