"""A second process that kills this one when no thread of this one can run any more.

A call into C that never releases the GIL stops every thread of Python, also the exit guard's. Python's signal handler
still writes its byte to the wake-up pipe, as that needs no GIL. The kernel then sends SIGUSR1 to the watchdog, because
the watchdog owns the pipe's reader (F_SETOWN, O_ASYNC). The watchdog waits for some seconds and sends SIGKILL.

The watchdog is `/bin/sh`: 2 ms to start and less than 1 MB. It ends with this process, however that ends, because it
reads a pipe that only this process has open.
"""

from __future__ import annotations

import fcntl
import os
import signal

__all__ = ["FORCE_SECONDS", "start_watchdog"]

FORCE_SECONDS = 0.25
"""Seconds that the process gets beyond its own time to end, before it is killed."""

_SHELL = "/bin/sh"
_SCRIPT = """
trap '' HUP INT QUIT TERM PIPE
end() {
    trap '' USR1
    sleep "$1" & nap=$!
    { while read -r _; do :; done; kill -s KILL $nap; } <&3 2>/dev/null &
    wait $nap && kill -s KILL $PPID
    exit
}
trap 'end "$1"' USR1
exec 3<&0
echo ready
while read -r _; do :; done
"""


def start_watchdog(reader: int, seconds: float) -> int | None:
    """Start a process that kills this one some time after bytes arrive in a pipe.

    Args:
        reader: the reading end of the pipe. Other readers still get every byte.
        seconds: from the first byte to SIGKILL.

    Returns:
        The watchdog's process id; None if it cannot be started, as on a system without `/bin/sh`.
    """
    life_reader, life_writer = os.pipe()  # the writing end stays open as long as this process lives
    ready_reader, ready_writer = os.pipe()
    try:
        watchdog = _spawn(life_reader, ready_writer, seconds)
    except OSError:
        os.close(life_writer)
        os.close(ready_reader)
        return None
    finally:
        os.close(life_reader)
        os.close(ready_writer)
    # A signal before the trap is set would end the shell.
    ready = os.read(ready_reader, 64)
    os.close(ready_reader)
    if not ready:
        os.close(life_writer)
        return None
    fcntl.fcntl(reader, fcntl.F_SETOWN, watchdog)
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)
    return watchdog


def _spawn(life: int, ready: int, seconds: float) -> int:
    return os.posix_spawn(
        _SHELL,
        ["sh", "-c", _SCRIPT, "crucible-worker-watchdog", f"{seconds:g}"],
        {"PATH": os.environ.get("PATH", os.defpath)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, life, 0),
            (os.POSIX_SPAWN_DUP2, ready, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setpgroup=0,  # signals to the group of this process must not end the watchdog first
        setsigmask=[],
        setsigdef=[signal.SIGUSR1],  # a signal that was ignored cannot be trapped
    )
