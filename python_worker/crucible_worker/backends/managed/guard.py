"""A process between the worker and one server: however the worker ends, no process of the server is left.

It leads a process group with the server and all that the server starts. When the worker's end of the socket closes, the
server gets SIGTERM, and after a grace period the whole group gets SIGKILL. When the server ends, so does the group.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

from crucible_worker.children.entry import begin
from crucible_worker.children.lifetime import die_with, outlive

__all__ = ["GRACE_SECONDS"]

GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL: a server removes its shared memory in this time."""
_ROUNDS = 100
_PAUSE_SECONDS = 0.01
"""Processes of the group are killed until none is left, at most so often: one that nobody reaps stays listed."""


def main() -> NoReturn:
    """Run the command of the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True, help="file that the server's output is appended to")
    parser.add_argument("command", nargs="+", help="the server's command line")
    arguments, worker = begin("crucible_worker.backends.managed.guard", __doc__, parser)
    guard = os.getpid()
    log = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        server = subprocess.Popen(
            arguments.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: die_with(guard),  # this process has one thread
        )
    except OSError as error:
        os.write(log, f"cannot be started: {error}\n".encode())
        sys.exit(127)
    # From here on this process has something to end.
    outlive()
    _wait(worker, server)
    _end_group(server)


def _wait(worker: socket.socket, server: subprocess.Popen[bytes]) -> None:
    """Until the server ends, or the worker's end of the socket closes; then end the server in order."""
    pidfd = os.pidfd_open(server.pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(worker, select.POLLIN)
    if any(descriptor == pidfd for descriptor, _ in poll.poll()):
        return
    poll.unregister(worker)
    until = time.monotonic() + GRACE_SECONDS
    server.terminate()
    poll.poll(max(0.0, until - time.monotonic()) * 1000)


def _end_group(server: subprocess.Popen[bytes]) -> NoReturn:
    """Kill the server, and all of the group but this process; exit as the server did."""
    if server.poll() is None:
        server.kill()
    code = server.wait()
    # A signal to the group would end this process first. Processes that start others meanwhile are found again.
    for _ in range(_ROUNDS):
        others = _others(os.getpgrp())
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not others:
            break
        time.sleep(_PAUSE_SECONDS)
    os._exit(code if code >= 0 else 128 - code)


def _others(group: int) -> list[int]:
    """The processes of a group, without this one."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(int(name)) == group:
                found.append(int(name))
    return found


if __name__ == "__main__":
    main()
