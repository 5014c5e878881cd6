"""Children of the host: forked from a process that has only imported transformers.

An import of transformers takes seconds and 250 MB, a fork of that process milliseconds and little memory. The host
itself cannot fork, as it has threads by then.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from crucible_worker.children import fork_server
from crucible_worker.children.fork_server import MAX_PACKET_BYTES, packet, packet_from
from crucible_worker.children.lifetime import die_with

__all__ = ["Child", "ForkServerEnded", "HostForkServer", "import_architecture"]

_MAX_NAME_BYTES = 1_000


class ForkServerEnded(Exception):
    """Raised when the fork server has ended: only another host gets a new one."""


class Child:
    """A forked process, and this end of its socket."""

    def __init__(self, endpoint: socket.socket, pidfd: int) -> None:
        self.endpoint = endpoint
        """A blocking socket; a child ends at the end of its input."""
        self.pidfd = pidfd
        """Signals by it reach only this process, and no later one with the same id."""

    def close(self) -> None:
        """Close the socket and the pidfd; a child that still runs ends when it reads."""
        self.endpoint.close()
        os.close(self.pidfd)


class HostForkServer:
    """Forks children that run one function. The main thread must make it, before there are other threads.

    Args:
        run: what a child does with its end of the socket; the child ends when it returns or raises.
        prepare: called with the name that a child is forked for, before it is forked.
    """

    def __init__(
        self, run: Callable[[socket.socket], None], prepare: Callable[[str], None] = lambda name: None
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._last_number = 0
        self._forking = threading.Lock()
        parent = os.getpid()
        if os.fork() == 0:
            try:
                die_with(parent)
                # Above all the channel to the worker: only the host may have its end.
                number = theirs.fileno()
                os.closerange(3, number)
                os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
                fork_server.ForkServer(theirs, lambda end, _: run(end), prepare=prepare).serve()
            finally:
                os._exit(1)
        theirs.close()

    def fork(self, name: str) -> Child:
        """Fork a child that is prepared for a name; threads wait for each other.

        Raises:
            ForkServerEnded: it was killed, or could not fork.
        """
        with self._forking:
            return self._fork(name)

    def _fork(self, name: str) -> Child:
        ours, theirs = socket.socketpair()
        self._last_number += 1
        told = name.encode(errors="replace")[:_MAX_NAME_BYTES].decode(errors="replace")
        with theirs, contextlib.suppress(ConnectionError):
            order = packet(op="start", number=self._last_number, name=told)
            socket.send_fds(self._control, [order], [theirs.fileno()])
            while (received := socket.recv_fds(self._control, MAX_PACKET_BYTES, 1))[0]:
                news = packet_from(received[0])
                if news["number"] == self._last_number:
                    if news["op"] == "started":
                        return Child(ours, received[1][0])
                    break
        ours.close()
        raise ForkServerEnded


def import_architecture(model_type: str) -> None:
    """Import once what all children of an architecture would import."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    # If the library does not know the type, or cannot import it, the child refuses it and reports why.
    with contextlib.suppress(Exception):
        MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]]
