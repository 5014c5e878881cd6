"""Ends the process in time: a few seconds after the first signal, whatever it is busy with.

Python runs signal handlers between bytecodes of the main thread: during a long call into C, SIGTERM has no effect. So
the C-level handler's byte (`signal.set_wakeup_fd`) goes to a separate thread, which starts a clock, notifies the event
loop, and ends the process when the time is over. A call that never releases the GIL stops that thread as well: then the
watchdog, a separate process, kills this one a moment later.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["ExitGuard"]

# A second process that kills this one when no thread of this one can run any more.
#
# A call into C that never releases the GIL stops every thread of Python, also the exit guard's. Python's signal handler
# still writes its byte to the wake-up pipe, as that needs no GIL. The kernel then sends SIGUSR1 to the watchdog,
# because the watchdog owns the pipe's reader (F_SETOWN, O_ASYNC). The watchdog waits for some seconds and sends
# SIGKILL.
#
# The watchdog is `/bin/sh`: 2 ms to start and less than 1 MB. It ends with this process, however that ends, because it
# reads a pipe that only this process has open.

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


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ARM = 0
"""The byte of a Drain call; signal numbers start at 1."""


class ExitGuard:
    """Handles SIGTERM and SIGINT, and ends the process with 0: in time, or at once at the second signal.

    SIGHUP is ignored.
    """

    def __init__(self, seconds: float) -> None:
        """Give the process so many seconds after the first signal, or after `arm`."""
        self._seconds = seconds
        self._begin: Callable[[], object] | None = None
        self.watched = False
        """Whether a watchdog ends the process if none of its threads can."""
        self._leftovers: list[Path] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        """Begin to handle signals; call it in the main thread. It cannot be undone: this guard ends the process."""
        self.watched = start_watchdog(self._reader, self._seconds + FORCE_SECONDS) is not None
        for number in _SIGNALS:
            signal.signal(number, _do_nothing)
        # A terminal that is closed ends no worker. A handler would write a byte, and so start the clock.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        atexit.register(_ignore)
        threading.Thread(target=self._run, name="exit-guard", daemon=True).start()

    def tell(self, begin: Callable[[], object]) -> None:
        """Call `begin`, from the guard's thread, when the end begins. Without it, there is nothing to clean up."""
        self._begin = begin

    def arm(self, seconds: float | None = None) -> None:
        """Start the clock without a signal; it then runs for `seconds`, if these are fewer."""
        if seconds is not None:
            self._seconds = min(self._seconds, seconds)
        with contextlib.suppress(BlockingIOError):  # a full pipe has bytes that start it
            os.write(self._writer, bytes((_ARM,)))

    def remove_at_exit(self, path: Path) -> None:
        """Remove a file if the process must be ended by force."""
        self._leftovers.append(path)

    def _run(self) -> None:
        signals = self._next(None)
        began = time.monotonic()
        if self._begin is not None:
            self._begin()
            while signals < 2 and (left := began + self._seconds - time.monotonic()) > 0:
                signals += self._next(left)
        for path in self._leftovers:
            with contextlib.suppress(OSError):
                path.unlink()
        os._exit(0)

    def _next(self, timeout: float | None) -> int:
        """Wait for bytes; returns how many of them are our signals."""
        while select.select([self._reader], [], [], timeout)[0]:
            heard = [byte for byte in os.read(self._reader, 64) if byte == _ARM or byte in _SIGNALS]
            if heard:
                return sum(byte != _ARM for byte in heard)
            if timeout is not None:
                break
        return 0


def _ignore() -> None:
    """Ignore our signals: Python removes handlers at its end, and a signal after that would set the exit code."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _do_nothing(number: int, frame: object) -> None:
    """A handler must exist for the wake-up byte to be written; the guard's thread does the rest."""
