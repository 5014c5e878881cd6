"""Who is next at a child: first come, first served, but for those who have patience, and nobody's turn is lost."""

from __future__ import annotations

import asyncio

import pytest

from crucible_worker.grading.pool import PrioritySemaphore
from tests import virtual_time

LONG, LITTLE = 60.0, 0.01
"""Seconds of patience, by a clock that stands while there is something to do."""


async def line_up(turns: PrioritySemaphore, log: list[str], name: str, patience: float = 0.0) -> asyncio.Task[None]:
    """Have somebody wait in line, who notes the turn and keeps it."""

    async def wait() -> None:
        await turns.acquire(patience)
        log.append(name)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


async def test_first_come_first_served():
    """Turns are given in the order in which they were asked for."""
    turns, log = PrioritySemaphore(1), []
    tasks = [await line_up(turns, log, name) for name in "abc"]
    assert log == ["a"]
    for _ in "bc":
        turns.release()
        await asyncio.sleep(0)

    await asyncio.gather(*tasks)

    assert log == ["a", "b", "c"]


def test_the_patient_let_others_go_first():
    """Who has patience goes behind whoever comes within it, but is not kept waiting for ever."""

    async def in_line() -> list[str]:
        turns, log = PrioritySemaphore(1), []
        await turns.acquire()
        tasks = [
            await line_up(turns, log, "patient", LONG),
            await line_up(turns, log, "a little", LITTLE),
            await line_up(turns, log, "not"),
        ]
        await asyncio.sleep(2 * LITTLE)
        tasks.append(await line_up(turns, log, "late"))
        for _ in tasks:
            turns.release()

        await asyncio.gather(*tasks)
        return log

    assert virtual_time.run(in_line()) == ["not", "a little", "late", "patient"]


async def test_who_leaves_the_line_takes_no_turn():
    """A turn that would come to somebody who has gone goes to the next, and one that came at once is given back."""
    turns, log = PrioritySemaphore(1), []
    await turns.acquire()
    gone, both = await line_up(turns, log, "gone"), await line_up(turns, log, "both")
    stays = await line_up(turns, log, "stays")
    gone.cancel()
    await asyncio.sleep(0)
    turns.release()
    both.cancel()

    await stays

    assert log == ["stays"]
    for task in (gone, both):
        with pytest.raises(asyncio.CancelledError):
            await task
    turns.release()
    await asyncio.wait_for(turns.acquire(), 1)
