"""The process that has loaded an environment, and is forked for each group at work.

It runs nothing of the environment but its import, so it hears the worker at once, whatever a group does: an order on
its socket brings a group's own socket, or has a process killed. It tells of the end of each. With the socket it ends,
and with it all that it has started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.reasons import Reason
from crucible_worker.children.frames import HEADER
from crucible_worker.children.messages import error_to_map
from crucible_worker.evaluators.environments import entry_points
from crucible_worker.evaluators.environments.base import EnvironmentType
from crucible_worker.evaluators.environments.host import player
from crucible_worker.lifetime import outlive

__all__ = ["describe", "keep"]

_MAX_ORDER_BYTES = 4_096
_NICE = 10
"""Beside a worker that answers its callers, what computes without end waits its turn."""
_OOM_SCORE_ADJ = "1000"
_HOST = "crucible_worker.evaluators.environments.host"


def describe(end: socket.socket, name: str) -> NoReturn:
    """Tell what an environment says of itself, or why it cannot be used."""
    try:
        told: dict[str, Any] = {"options_schema": entry_points.load(name).options_schema}
    except BridgeError as error:
        told = {"error": error_to_map(error)}
    body = json.dumps(told).encode()
    end.sendall(HEADER.pack(len(body)) + body)
    # What the environment has started is not waited for.
    os._exit(0)


def keep(control: socket.socket, name: str) -> NoReturn:
    """Load an environment, and serve orders until the socket is closed."""
    try:
        environment = entry_points.load(name)
    except BridgeError as error:
        control.send(json.dumps({"op": "failed", "error": error_to_map(error)}).encode())
        os._exit(0)
    os.nice(_NICE)
    # Where memory runs out, a group of environments is what is missed least.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    # Collections would write into every page that is shared with what is forked.
    gc.collect()
    gc.freeze()
    # Killed with the worker, it could not kill what groups have started; from here on its socket tells it.
    outlive()
    control.send(b'{"op": "ready"}')
    _Keeper(control, name, environment).serve()


@dataclasses.dataclass(frozen=True, slots=True)
class _Started:
    number: int
    pid: int
    pidfd: int


class _Keeper:
    def __init__(self, control: socket.socket, name: str, environment: EnvironmentType) -> None:
        self._control, self._name, self._environment = control, name, environment
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._started: dict[int, _Started] = {}
        # What the environment does of the end of children, such as ignoring it, would take away how ours have ended.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def serve(self) -> NoReturn:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    self._obey()
                else:
                    self._reap(descriptor)

    def _obey(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MAX_ORDER_BYTES, 1)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            for started in self._started.values():
                _kill(started.pid)
            os._exit(0)
        order = json.loads(data)
        if order["op"] == "start":
            self._tell(self._start(order["number"], fds[0]))
        else:
            for started in self._started.values():
                if started.number == order["number"]:
                    _kill(started.pid)

    def _start(self, number: int, end: int) -> dict[str, Any]:
        """Start a process for groups; what is to be told of it."""
        try:
            pid = self._forked(end) if _is_single_threaded() else self._spawned(end)
        except OSError as error:  # one more is too many, which is nothing to those that are at work
            message = f"a process of the environment {self._name!r} cannot be started: {error.strerror}"
            why = BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True)
            return {"op": "failed", "error": error_to_map(why)}
        finally:
            os.close(end)
        pidfd = os.pidfd_open(pid)
        self._started[pidfd] = _Started(number, pid, pidfd)
        self._poll.register(pidfd, select.POLLIN)
        return {"op": "started", "number": number}

    def _forked(self, end: int) -> int:
        keeper = os.getpid()
        pid = os.fork()
        if pid:
            # Here as in the child: whoever is first has done it before anybody kills the group.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            return pid
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            self._control.close()
            for other in self._started:
                os.close(other)
            if self._on_child is not None:  # else it is none of Python's
                signal.signal(signal.SIGCHLD, self._on_child)
            player.play(socket.socket(fileno=end), self._environment, keeper)
        finally:
            os._exit(1)

    def _spawned(self, end: int) -> int:
        """One that loads the environment itself: what has threads may hold any lock as it is forked."""
        command = [sys.executable, "-P", "-m", _HOST, f"--parent={os.getpid()}", f"--socket={end}", "play", self._name]
        process = subprocess.Popen(command, pass_fds=(end,), process_group=0)
        process.returncode = 0  # it is waited for below, by its id
        return process.pid

    def _reap(self, descriptor: int) -> None:
        started = self._started.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        # Not yet waited for, its id is nobody else's: what it has left behind is killed by its group.
        _kill(started.pid)
        _, status = os.waitpid(started.pid, 0)
        self._tell({"op": "ended", "number": started.number, "status": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the worker is gone, which the next order says
            self._control.send(json.dumps(message).encode())


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _is_single_threaded() -> bool:
    return len(os.listdir("/proc/self/task")) == 1
