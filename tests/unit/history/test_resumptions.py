"""When an interrupted evaluation may be resumed without a call for it."""

from __future__ import annotations

import time

import pytest

from crucible_bridge.errors import Unavailable
from crucible_worker.engine import claims, controls
from crucible_worker.engine.controls import set_paused
from crucible_worker.history import lifecycle, resumptions
from crucible_worker.journal.queries import find_by_number
from tests.unit.journal.journals import claim, commit, request


async def possible(journal) -> list[int]:
    """The numbers of those that may be resumed now."""
    return [row.number for row, _ in await journal.read(resumptions.resumable)]


async def resumed(journal, locks):
    """Resume without a call; returns the evaluation."""
    made = await journal.submit(
        lambda t: claims.claim(
            t, locks, request(), fingerprint="f", contents=None, worker_id="w", again=False, by_itself=True
        )
    )
    return made.row


async def died(journal, locks, row) -> None:
    """Its owner is gone, and another worker has found that."""

    def found(transaction) -> None:
        locks.release_in(transaction, row.number)

    await journal.submit(found)
    await journal.submit(lambda t: lifecycle.reap(t, locks, row.number))


async def rest_of(journal, number: int) -> float:
    """Seconds from now until it may be resumed."""
    sql = "SELECT not_before_ns FROM resumptions WHERE number = ?"
    ((not_before,),) = await journal.read(lambda source: source.execute(sql, (number,)).fetchall())
    return (not_before - time.time_ns()) / 1e9


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a caller that may come."""
    monkeypatch.setattr(resumptions, "REST_SECONDS", 0.0)


async def test_a_drain_leaves_what_may_be_resumed_and_its_user_what_waits(journal, locks):
    """Whoever has ended a command himself wants nothing to continue behind it; a call resumes it all the same."""
    first = (await claim(journal, locks)).row
    other = (await claim(journal, locks, "other")).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, first, 0, "drain"))
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, other, 0, "drain", held=True))
    assert await possible(journal) == [first.number]

    again = (await claim(journal, locks, "other")).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, again, 0, "drain"))
    assert await possible(journal) == [first.number, other.number]


async def test_deaths_without_a_sample_done_are_waited_after_longer_and_longer(journal, locks):
    """The evaluation may be what its workers die of; a sample that is done ends that suspicion, and a call does."""
    row = (await claim(journal, locks)).row
    rests = []
    for position in (None, None, None, 0, None):
        if position is not None:
            await commit(journal, row, position)
        await died(journal, locks, row)
        rests.append(await rest_of(journal, row.number))
        row = await resumed(journal, locks)
    first = resumptions.FIRST_BACKOFF_SECONDS
    assert rests == pytest.approx([first, 2 * first, 4 * first, 0.0, first], abs=5.0)

    await died(journal, locks, row)
    row = (await claim(journal, locks)).row
    await died(journal, locks, row)
    assert await rest_of(journal, row.number) == pytest.approx(first, abs=5.0)


async def test_after_many_deaths_it_waits_for_a_call(journal, locks, monkeypatch: pytest.MonkeyPatch):
    """The longest wait is bounded, and so is the number of attempts."""
    monkeypatch.setattr(resumptions, "FIRST_BACKOFF_SECONDS", 0.0)
    row = (await claim(journal, locks)).row
    found = []
    for _ in range(resumptions.MAX_FAILURES):
        await died(journal, locks, row)
        found.append(await possible(journal))
        row = await resumed(journal, locks)
    assert found == [[row.number]] * (resumptions.MAX_FAILURES - 1) + [[]]


async def test_what_an_earlier_release_has_begun_waits_for_a_call(journal, locks):
    """It knows no such record, and adds an attempt that names no rules."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET attempt = attempt + 1"))
    assert await possible(journal) == []


async def test_what_a_caller_has_paused_waits_for_the_end_of_the_pause(journal, locks):
    """An attempt would begin no sample, and take a place."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: set_paused(t, row.number, True))
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    assert await possible(journal) == []
    await journal.submit(lambda t: set_paused(t, row.number, False))
    assert await possible(journal) == [row.number]


async def test_after_many_outages_it_waits_for_a_call(journal, locks, monkeypatch: pytest.MonkeyPatch):
    """A server that is gone for good is not asked for ever, and its evaluation is removed when it is old."""
    monkeypatch.setattr(controls, "FIRST_REST_SECONDS", 0.0)
    monkeypatch.setattr(resumptions, "MAX_OUTAGES", 3)
    row = (await claim(journal, locks)).row
    found = []

    def outage(transaction) -> None:
        controls.begin_wait(transaction, row.number, ["server lab since 12:00:04 UTC"], "refused")
        controls.put_off(transaction, row.number)
        lifecycle.interrupt(transaction, locks, row, 0, "server lab is away")

    for _ in range(3):
        await journal.submit(outage)
        found.append(await possible(journal))
        row = await resumed(journal, locks)
    assert found == [[row.number], [row.number], []]


@pytest.mark.parametrize(("days_ahead", "waits_here"), [(0, True), (40, False)])
async def test_a_clock_that_was_ahead_puts_no_attempt_off(
    journal, locks, monkeypatch: pytest.MonkeyPatch, days_ahead: int, waits_here: bool
):
    """What a worker wrote whose clock was 40 days ahead does not count once the clock is right: no rest is so long."""
    died_row = (await claim(journal, locks)).row
    away_row = (await claim(journal, locks, "away")).row
    right = time.time_ns

    def outage(transaction) -> None:
        controls.begin_wait(transaction, away_row.number, ["server lab since 12:00:04 UTC"], "refused")
        controls.put_off(transaction, away_row.number)
        lifecycle.interrupt(transaction, locks, away_row, 0, "server lab is away")

    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time_ns", lambda: right() + days_ahead * 24 * 60 * 60 * 10**9)
        await died(journal, locks, died_row)
        await journal.submit(outage)

    assert set(await possible(journal)) == (set() if waits_here else {died_row.number, away_row.number})
    row = await journal.read(find_by_number, away_row.number)
    if waits_here:
        with pytest.raises(Unavailable, match="no attempt begins for"):
            controls.refuse_too_early(row)
    else:
        controls.refuse_too_early(row)
