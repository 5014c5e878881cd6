"""A process between the worker and one server: however the worker ends, no process of the server is left.

It leads a process group with the server and all that the server starts, and adopts what leaves the group. When the
worker's end of the socket closes, the server gets SIGTERM, and after a grace period all of them get SIGKILL. When the
server ends, so do the others.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from crucible_worker.children.lifetime import adopt, begin, die_with, outlive
from crucible_worker.util.files import open_private

__all__ = ["GRACE_SECONDS"]

GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL: a server removes its shared memory in this time."""
_ROUNDS = 100
_PAUSE_SECONDS = 0.01
"""Processes are killed until none is left, at most so often."""


def main() -> NoReturn:
    """Run the command of the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True, help="file that the server's output is appended to")
    parser.add_argument("command", nargs="+", help="the server's command line")
    arguments, worker = begin("crucible_worker.backends.managed.guard", __doc__, parser)
    guard = os.getpid()
    adopt()
    log = open_private(Path(arguments.log), os.O_WRONLY | os.O_APPEND)
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
    _end_all(server)


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


def _end_all(server: subprocess.Popen[bytes]) -> NoReturn:
    """Kill the server and all that it has started; exit as the server did."""
    if server.poll() is None:
        server.kill()
    code = server.wait()
    # A signal to the group would end this process first. Processes that start others meanwhile are found again.
    for _ in range(_ROUNDS):
        others = _others()
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not others:
            break
        time.sleep(_PAUSE_SECONDS)
        with contextlib.suppress(ChildProcessError):  # what was adopted is reaped here
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
    os._exit(code if code >= 0 else 128 - code)


def _others() -> list[int]:
    """This process's group and descendants, without itself."""
    here, parents = os.getpid(), _parents()
    children = collections.defaultdict[int, list[int]](list)
    for process, (parent, _) in parents.items():
        children[parent].append(process)
    found = dict.fromkeys(process for process, (_, group) in parents.items() if group == here)
    left = [here, *found]
    while left:
        new = [process for process in children[left.pop()] if process not in found]
        found.update(dict.fromkeys(new))
        left += new
    found.pop(here, None)
    return list(found)


def _parents() -> dict[int, tuple[int, int]]:
    """The parent and the group of every process of this machine."""
    found: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    # The name of the program may contain anything.
                    _, parent, group, *_ = file.read().rpartition(")")[2].split()
                found[int(name)] = int(parent), int(group)
    return found


if __name__ == "__main__":
    main()
