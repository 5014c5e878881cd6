"""News of commits by any worker.

SQLite reports in 2.5 us whether another connection has committed (`PRAGMA data_version`). So polling 50 times a second
costs nothing, does not block the event loop, and works across processes without any channel between them.
"""

from __future__ import annotations

import asyncio
import sqlite3

from crucible_bridge.reasons import Reason
from crucible_worker.journal.unavailable import JournalUnavailable

__all__ = ["POLL_SECONDS", "CommitNotifier", "PolledNews"]

POLL_SECONDS = 0.02
"""Seconds between two polls for other workers' commits, while a call waits."""


class CommitNotifier:
    """Wakes the calls that wait for a commit. One per journal and worker, used on the loop only."""

    def __init__(self) -> None:
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._count = 0

    @property
    def count(self) -> int:
        """Grows with every commit seen; what `wait` compares."""
        return self._count

    def publish(self) -> None:
        """A worker has committed."""
        self._wake()

    async def wait(self, seen: int, at_most: float) -> int:
        """Wait until `count` is no longer `seen`, for `at_most` seconds; returns `count`.

        Raises:
            JournalUnavailable: the journal is closed.
        """
        if self._closed:
            raise JournalUnavailable("the worker is draining", reason=Reason.DRAINING)
        if self._count == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            self._schedule()
            try:
                await asyncio.wait([future], timeout=at_most)
            finally:
                self._waiting.discard(future)
        return self._count

    def close(self) -> None:
        """Wake all waiting calls; there are no news any more."""
        self._closed = True
        self._wake()

    def _schedule(self) -> None:
        """Called when a call begins to wait."""

    def _wake(self) -> None:
        self._count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class PolledNews(CommitNotifier):
    """News of a SQLite journal."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Poll this connection, which `close` closes."""
        super().__init__()
        self._connection = connection
        self._version = self._data_version()
        self._poll: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Wake all waiting calls and stop polling."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        super().close()
        self._connection.close()

    def _data_version(self) -> int:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]

    def _schedule(self) -> None:
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_SECONDS, self._ask)

    def _ask(self) -> None:
        self._poll = None
        try:
            version = self._data_version()
        except sqlite3.DatabaseError:
            # The disk fails. Waiting calls are woken: their next read or write raises the error.
            version = None
        if version != self._version:
            self._version = version
            self._wake()
        if self._waiting:
            self._schedule()
