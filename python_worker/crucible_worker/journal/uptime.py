"""The time during which workers have run, and the readings of the machine's clock meanwhile.

The machine's clock may be wrong: a month ahead until the network is up, or after a restore. A record that is removed
because of its age is lost for good, so a single reading of that clock removes nothing. The journal counts the time in
which at least one worker ran, by the monotonic clock (the lived time), and records readings of the machine's clock with
it. The earliest reading of the last hours is trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from crucible_worker.journal.store import Transaction

__all__ = ["READING_SECONDS", "UptimeClock", "trusted_clock"]

READING_SECONDS = 60.0
"""Lived time between two recorded readings, unless the clock went back."""


class UptimeClock:
    """Counts the lived time of one worker."""

    def __init__(self, leads: Callable[[Transaction], bool] = lambda transaction: True) -> None:
        """Count from now on.

        Args:
            leads: whether this worker's clocks count just now, where workers run on several machines.
        """
        self._leads = leads
        self._counted_ns = time.monotonic_ns()

    def beat(self, transaction: Transaction) -> None:
        """Add the time since the last beat that no other worker has counted, and read the machine's clock."""
        now = time.monotonic_ns()

        def counted() -> None:
            self._counted_ns = now

        transaction.after_commit(counted)
        if not self._leads(transaction):
            return
        lived, through = transaction.execute("SELECT lived_ns, through_ns FROM lived").fetchone() or (0, 0)
        if through > now:
            through = 0  # of the monotonic clock before the machine was started again
        lived += now - max(through, self._counted_ns)
        transaction.execute("INSERT OR REPLACE INTO lived VALUES (1, ?, ?)", (lived, now))
        _keep_reading(transaction, lived, time.time_ns())


def trusted_clock(transaction: Transaction, grace_seconds: float) -> int:
    """The earliest reading of the machine's clock in the last `grace_seconds` of lived time; 0 until these are over.

    A record that is too old by this time is too old by every reading in that period.
    """
    row = transaction.execute("SELECT lived_ns FROM lived").fetchone()
    lived = 0 if row is None else row[0]
    now = time.time_ns()
    since = lived - int(grace_seconds * 1e9)
    if since >= lived:
        return now
    (first,) = transaction.execute("SELECT MAX(lived_ns) FROM clock_readings WHERE lived_ns <= ?", (since,)).fetchone()
    if first is None:
        return 0
    transaction.execute("DELETE FROM clock_readings WHERE lived_ns < ?", (first,))
    (earliest,) = transaction.execute("SELECT MIN(unix_ns) FROM clock_readings").fetchone()
    return min(earliest, now)


def _keep_reading(transaction: Transaction, lived_ns: int, unix_ns: int) -> None:
    last = transaction.execute("SELECT lived_ns, unix_ns FROM clock_readings ORDER BY lived_ns DESC LIMIT 1").fetchone()
    if last is not None and lived_ns - last[0] < READING_SECONDS * 1e9 and unix_ns >= last[1]:
        return
    transaction.execute(
        """INSERT INTO clock_readings VALUES (?, ?) ON CONFLICT (lived_ns)
           DO UPDATE SET unix_ns = excluded.unix_ns WHERE excluded.unix_ns < clock_readings.unix_ns""",
        (lived_ns, unix_ns),
    )
