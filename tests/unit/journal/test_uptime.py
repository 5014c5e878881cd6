"""The time that workers have lived through, and what is removed by it: never because of one reading of a clock."""

from __future__ import annotations

import dataclasses

import pytest

from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.history import lifecycle, retention
from crucible_worker.history.retention import Retention
from crucible_worker.journal import Transaction, queries, uptime
from crucible_worker.journal.uptime import READING_SECONDS, UptimeClock
from tests.unit.journal.journals import claim

MINUTE, HOUR, DAY = 60.0, 3600.0, 24 * 3600.0
GRACE = DAY
KEEP = Retention(
    max_events=10**6, evaluation_seconds=30 * DAY, interrupted_seconds=7 * DAY, plan_seconds=DAY, grace_seconds=GRACE
)


@dataclasses.dataclass
class Clocks:
    """A machine's clocks, which stand still but for what a test says."""

    monotonic: float = 1000.0
    unix: float = 1_800_000_000.0

    def monotonic_ns(self) -> int:
        return int(self.monotonic * 1e9)

    def time_ns(self) -> int:
        return int(self.unix * 1e9)

    def pass_by(self, seconds: float) -> None:
        self.monotonic += seconds
        self.unix += seconds


@pytest.fixture
def clocks(monkeypatch):
    """The clocks that workers read."""
    made = Clocks()
    monkeypatch.setattr(uptime, "time", made)
    monkeypatch.setattr(lifecycle, "time", made)
    return made


async def counted(journal) -> float:
    """Seconds lived so far."""
    (found,) = await journal.read(lambda c: c.execute("SELECT lived_ns FROM lived").fetchone())
    return found / 1e9


async def live(journal, clocks, seconds, *lives, pause=HOUR):
    """Let workers live, each with a beat now and then."""
    while seconds > 0:
        clocks.pass_by(step := min(pause, seconds))
        seconds -= step
        for life in lives:
            await journal.submit(life.beat)


async def test_time_is_counted_once_however_many_workers_ran(journal, clocks):
    """Workers that run at once add what one of them does; the time in which none ran does not count."""
    one = UptimeClock()
    await live(journal, clocks, 10 * MINUTE, one)
    other = UptimeClock()
    await live(journal, clocks, 10 * MINUTE, one, other)
    assert await counted(journal) == 20 * MINUTE
    await live(journal, clocks, 10 * MINUTE, other)
    assert await counted(journal) == 30 * MINUTE
    clocks.pass_by(DAY)
    await live(journal, clocks, 5 * MINUTE, UptimeClock())
    assert await counted(journal) == 35 * MINUTE


async def test_time_before_the_first_beat_of_a_worker_counts_from_its_start(journal, clocks):
    """A worker that could not write for an hour has lived through it, as far as no other has counted it."""
    one, other = UptimeClock(), UptimeClock()
    clocks.pass_by(20 * MINUTE)
    await journal.submit(one.beat)
    clocks.pass_by(40 * MINUTE)
    await journal.submit(other.beat)
    assert await counted(journal) == HOUR


async def test_a_beat_that_is_not_written_counts_with_the_next_one(journal, clocks):
    """Nothing is counted before its commit, and nothing is lost by a transaction that fails."""
    life = UptimeClock()
    clocks.pass_by(10 * MINUTE)

    def fails(transaction: Transaction) -> None:
        life.beat(transaction)
        raise KeyError("undone")

    with pytest.raises(KeyError):
        await journal.submit(fails)
    clocks.pass_by(MINUTE)
    await journal.submit(life.beat)
    assert await counted(journal) == 11 * MINUTE


@pytest.mark.parametrize("monotonic", [0.0, 500.0, 1000.0 + 10 * MINUTE, 10**9])
async def test_a_machine_that_starts_again_counts_on(journal, clocks, monotonic):
    """The monotonic clock begins anew, at whatever it likes: no time is lost, and none is invented."""
    await live(journal, clocks, 10 * MINUTE, UptimeClock())
    clocks.monotonic = monotonic
    await live(journal, clocks, 10 * MINUTE, UptimeClock())
    assert await counted(journal) == 20 * MINUTE


async def ended(journal, locks, evaluation_id="e"):
    """An evaluation that ends now."""
    row = (await claim(journal, locks, evaluation_id)).row
    problem = Problem(reason="X", message="x")
    await journal.submit(lambda t: lifecycle.end(t, locks, row, EvaluationState.FAILED, problem, 0))


async def states(journal, locks):
    """What is left after all was trimmed that is to be."""
    while await journal.submit(lambda t: retention.trim(t, locks, KEEP)):
        pass
    rows, _ = await journal.read(queries.list_rows)
    return {row.evaluation_id: row.state.value for row in rows}


@pytest.mark.parametrize(("beyond", "left"), [(GRACE - MINUTE, {"e": "failed"}), (GRACE + 2 * MINUTE, {})])
async def test_what_is_too_old_goes_when_it_was_so_for_the_grace(journal, locks, clocks, beyond, left):
    """Beyond the limit, for less than the grace in lived time: it stays. For longer: it goes."""
    await ended(journal, locks)
    clocks.pass_by(KEEP.evaluation_seconds)
    await live(journal, clocks, beyond, UptimeClock(), pause=MINUTE)
    assert await states(journal, locks) == left


async def test_time_without_a_worker_is_no_grace(journal, locks, clocks):
    """A journal left alone for 40 days, and again for 400, loses nothing at the first start."""
    await ended(journal, locks)
    row = (await claim(journal, locks, "interrupted")).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    for days in (40, 400):
        await live(journal, clocks, 2 * HOUR, UptimeClock())
        clocks.pass_by(days * DAY)
        life = UptimeClock()
        await journal.submit(life.beat)
        assert await states(journal, locks) == {"e": "failed", "interrupted": "interrupted"}
    await live(journal, clocks, GRACE, life)
    assert await states(journal, locks) == {"interrupted": "interrupted"}  # the log says that it will be cancelled
    await live(journal, clocks, retention.NOTICE_SECONDS, life)
    assert await states(journal, locks) == {"interrupted": "cancelled"}


@pytest.mark.parametrize("wrong_for", [MINUTE, 12 * HOUR, GRACE - MINUTE])
async def test_a_clock_that_is_ahead_for_less_than_the_grace_removes_nothing(journal, locks, clocks, wrong_for):
    """Whatever the clock says meanwhile and later, as long as it is right again."""
    life = UptimeClock()
    await live(journal, clocks, 2 * DAY, life)
    await ended(journal, locks)
    clocks.unix += 31 * DAY
    life = UptimeClock()
    await live(journal, clocks, wrong_for, life)
    assert await states(journal, locks) == {"e": "failed"}
    await ended(journal, locks, "ahead")
    clocks.unix -= 31 * DAY
    await live(journal, clocks, 28 * DAY, life)
    assert await states(journal, locks) == {"e": "failed", "ahead": "failed"}
    await live(journal, clocks, 4 * DAY, life)
    assert await states(journal, locks) == {"ahead": "failed"}, "that is what the clock said when it ended"


async def test_one_worker_that_is_right_keeps_what_others_hold_for_old(journal, locks, clocks):
    """Of workers that read different clocks at the same time, the earliest reading counts."""
    await ended(journal, locks)
    right, ahead = UptimeClock(), UptimeClock()
    for _ in range(int(2 * GRACE // HOUR)):
        clocks.pass_by(HOUR)
        clocks.unix += 31 * DAY
        await journal.submit(ahead.beat)
        clocks.unix -= 31 * DAY
        await journal.submit(right.beat)
    clocks.unix += 31 * DAY
    assert await states(journal, locks) == {"e": "failed"}


async def test_readings_are_bounded(journal, locks, clocks):
    """The journal keeps no more readings than the grace has minutes, however long workers run."""
    life = UptimeClock()
    for _ in range(3):
        await live(journal, clocks, GRACE, life, UptimeClock(), pause=MINUTE / 2)
        await states(journal, locks)
    (count,) = await journal.read(lambda c: c.execute("SELECT COUNT(*) FROM clock_readings").fetchone())
    assert GRACE / READING_SECONDS / 2 < count <= GRACE / READING_SECONDS + 2
