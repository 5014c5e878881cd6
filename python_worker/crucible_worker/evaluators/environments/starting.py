"""How processes of environments are started, and killed with what they have started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.evaluators.variables import passed_variables

__all__ = ["LOAD_SECONDS", "ending_of", "ends", "kill", "reap", "start"]

LOAD_SECONDS = 120.0
"""How long an environment may take to be imported."""

# The directory that the worker happens to stand in is no place to import from.
_COMMAND = (sys.executable, "-P", "-m", "crucible_worker.evaluators.environments.host")
# Until they are waited for: a loop that ends before they do hears of them no more.
_unreaped: set[subprocess.Popen[bytes]] = set()


def start(what: str, environment: str, end: socket.socket, variables: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process of an environment, in a session of its own; it is to be waited for by `reap`.

    Args:
        what: its part: "describe" or "keep".
        environment: the environment's name.
        end: its end of a socket.
        variables: names of variables of the worker's that it gets, beside those that every process gets.

    Raises:
        BackendError: it cannot be started (reason ENVIRONMENT_NOT_STARTED).
    """
    for process in [process for process in _unreaped if process.poll() is not None]:
        _unreaped.discard(process)
    try:
        process = subprocess.Popen(
            [*_COMMAND, f"--parent={os.getpid()}", f"--socket={end.fileno()}", what, environment],
            stdin=subprocess.DEVNULL,
            # What an environment prints may be anything, and is nothing that the worker's log asks for.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Threads of OpenBLAS would make forking unsafe.
            env={"OPENBLAS_NUM_THREADS": "1", **passed_variables("TMPDIR", *variables)},
            pass_fds=(end.fileno(),),
            start_new_session=True,
        )
    except OSError as error:
        message = f"the process of the environment {environment!r} cannot be started: {error.strerror}"
        raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from error
    _unreaped.add(process)
    return process


def ends(process: subprocess.Popen[bytes], until: float) -> bool:
    """Whether a process ends before a time of `time.monotonic`; blocks, and leaves it to be waited for."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
    finally:
        os.close(pidfd)


def reap(process: subprocess.Popen[bytes]) -> str:
    """Wait for a process that has ended, or else is killed, with what it has left behind in its group; how it has."""
    kill(process)
    _unreaped.discard(process)
    return ending_of(process.wait())


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started in its group."""
    # Not yet waited for, its id is nobody else's: the group is its own.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def ending_of(code: int) -> str:
    """An exit status in words."""
    return f"ended (signal {-code})" if code < 0 else f"ended (exit status {code})"
