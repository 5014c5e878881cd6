"""The end of the process in time: from the first signal on it has a few seconds, whatever it is busy with.

Python runs signal handlers between bytecodes of the main thread: one long call into C, and SIGTERM is not heard. So the
C-level handler's byte (`signal.set_wakeup_fd`) goes to a thread of its own, which starts the clock, tells the event
loop, and ends the process when the clock runs out. A call that never releases the GIL stops that thread as well: then
the watchdog, which is another process, kills this one a moment later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from crucible_worker.server.watchdog import FORCE_SECONDS, start_watchdog

__all__ = ["ExitGuard"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ARM = 0
"""The byte of a Drain call; signal numbers start at 1."""


class ExitGuard:
    """Hears SIGTERM and SIGINT, and ends the process with 0: in time, or at the second signal at once."""

    def __init__(self, seconds: float) -> None:
        """Let the process live for so long after the first signal, or after `arm`."""
        self._seconds = seconds
        self._begin: Callable[[], object] | None = None
        self.watched = False
        """Whether a watchdog ends the process if none of its threads can."""
        self._leftovers: list[Path] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        """Begin to listen; in the main thread. There is no way back: the process is to end by this guard."""
        self.watched = start_watchdog(self._reader, self._seconds + FORCE_SECONDS) is not None
        for number in _SIGNALS:
            signal.signal(number, _heard_elsewhere)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        atexit.register(_ignore)
        threading.Thread(target=self._run, name="exit-guard", daemon=True).start()

    def tell(self, begin: Callable[[], object]) -> None:
        """Call `begin`, from the guard's thread, when the end begins; before, there is nothing to clean up."""
        self._begin = begin

    def arm(self, seconds: float | None = None) -> None:
        """Start the clock without a signal; it then runs for `seconds`, where these are fewer."""
        if seconds is not None:
            self._seconds = min(self._seconds, seconds)
        with contextlib.suppress(BlockingIOError):  # a full pipe holds enough to start it
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
        """Wait for news; how many of our signals they were."""
        while select.select([self._reader], [], [], timeout)[0]:
            heard = [byte for byte in os.read(self._reader, 64) if byte == _ARM or byte in _SIGNALS]
            if heard:
                return sum(byte != _ARM for byte in heard)
            if timeout is not None:
                break
        return 0


def _ignore() -> None:
    """Ignore what is ours to hear: Python's last act takes handlers away, and a signal then would be the exit code."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _heard_elsewhere(number: int, frame: object) -> None:
    """A handler must exist for the wake-up byte to be written; the guard's thread does the rest."""
