"""How long processes were ready to run and had no processor: what a busy machine adds to any time by the clock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["Starved"]


class Starved:
    """Counts from when it is made; Linux.

    The threads of a process are added up, so a time from which this is taken is one that the work itself cannot
    exceed.
    """

    def __init__(self, *pids: int) -> None:
        """Of these processes; of this one if none is named."""
        self._pids = pids or (os.getpid(),)
        self._before = self._total()

    def seconds(self) -> float:
        """Since then."""
        return (self._total() - self._before) / 1e9

    def _total(self) -> int:
        total = 0
        for pid in self._pids:
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):  # the thread has ended
                    total += int(path.read_text().split()[1])
        return total
