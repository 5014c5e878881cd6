"""Bounds in time for many tasks, by one timer of the event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest

from crucible_worker.util.tasks import Timeout, TimeoutQueue

SHORT = 0.01


async def _bounded(bound: Timeout, work: Awaitable[Any] | None = None) -> Any:
    """Wait within a bound: for work, or for nothing that ever comes."""
    with bound:
        return await (work or asyncio.get_running_loop().create_future())


async def _begun(bound: Timeout, work: Awaitable[Any] | None = None) -> asyncio.Task[Any]:
    task = asyncio.create_task(_bounded(bound, work))
    await asyncio.sleep(0)
    return task


def _timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the timers are due that the loop is given from now on, as it is given them."""
    loop, due = asyncio.get_running_loop(), []
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        due.append(when)
        return call_at(when, *arguments, **named)

    monkeypatch.setattr(loop, "call_at", counted)
    return due


async def test_many_blocks_have_one_timer(monkeypatch: pytest.MonkeyPatch):
    """One timer is set, whether blocks run one after the other or all at once; what has ended is forgotten."""
    timeouts, timers = TimeoutQueue(), _timers(monkeypatch)
    for _ in range(30):
        tasks = [await _begun(timeouts.within(60 + number), asyncio.sleep(0, number)) for number in range(10)]
        assert await asyncio.gather(*tasks) == list(range(10))

    assert len(timers) == 1
    assert len(timeouts._entries) < 200


async def test_every_block_ends_at_its_own_time():
    """In the order of their times, however they began; none early, and those without a time not at all."""
    timeouts, loop, ended = TimeoutQueue(), asyncio.get_running_loop(), []
    times = [SHORT * number for number in range(20)]
    random.Random(7).shuffle(times)

    async def run(seconds: float) -> None:
        bound = timeouts.within(seconds)
        with pytest.raises(TimeoutError):
            await _bounded(bound)
        assert bound.expired()
        assert loop.time() >= (bound.when() or 0.0)
        ended.append(bound.when())

    endless = await _begun(timeouts.within(None))
    await asyncio.gather(*[run(seconds) for seconds in times])

    assert ended == sorted(ended)
    assert not endless.done()
    endless.cancel()
    await asyncio.wait([endless])


async def test_a_block_may_be_put_off_or_ended_earlier():
    """A later time is kept, and an earlier one, and one where there was none."""
    timeouts, loop = TimeoutQueue(), asyncio.get_running_loop()
    began = loop.time()
    bounds = [timeouts.within(SHORT), timeouts.within(60), timeouts.within(None), timeouts.within(SHORT)]
    later, earlier, given, never = [await _begun(bound) for bound in bounds]
    bounds[0].reschedule(began + 5 * SHORT)
    bounds[1].reschedule(began + SHORT)
    bounds[2].reschedule(began + SHORT)
    bounds[3].reschedule(None)

    for task in (earlier, given, later):
        with pytest.raises(TimeoutError):
            await task
    assert loop.time() >= began + 5 * SHORT
    assert not never.done()
    never.cancel()
    await asyncio.wait([never])
    assert not bounds[3].expired()


async def test_a_block_that_ended_is_not_ended_again():
    """What its task does afterwards is not cancelled."""
    timeouts = TimeoutQueue()

    async def run() -> str:
        with timeouts.within(SHORT):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.create_task(_bounded(timeouts.within(SHORT)))  # ends after the time of the first
        return "done"

    assert await asyncio.create_task(run()) == "done"


async def test_a_block_that_another_cancels_is_cancelled():
    """Also where its time runs out in the same moment, and the cancel is heard after that."""
    timeouts, loop = TimeoutQueue(), asyncio.get_running_loop()
    alone = await _begun(timeouts.within(60))
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone

    both = await _begun(timeouts.within(SHORT))
    until = loop.time() + 2 * SHORT
    while loop.time() < until:
        pass  # the loop is held up, so that the timer is overdue
    loop.call_soon(both.cancel)
    with pytest.raises(asyncio.CancelledError):
        await both


async def test_blocks_may_lie_in_one_another():
    """Each has its own time: the inner one ends alone, the outer one ends both."""
    timeouts = TimeoutQueue()

    async def run(outer_seconds: float, inner_seconds: float) -> str:
        outer, inner = timeouts.within(outer_seconds), timeouts.within(inner_seconds)
        try:
            with outer:
                try:
                    await _bounded(inner)
                except TimeoutError:
                    return "inner"
        except TimeoutError:
            return "outer"
        return "neither"

    task: Any = asyncio.current_task()
    assert await run(60, SHORT) == "inner"
    assert await run(SHORT, 60) == "outer"
    assert task.cancelling() == 0


async def test_an_error_of_a_block_whose_time_is_over_stays_that_error():
    """As with `asyncio.timeout`; that its time was over can still be read."""
    bound = TimeoutQueue().within(SHORT)

    async def run() -> None:
        with bound:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise ValueError("of the block") from None

    with pytest.raises(ValueError, match="of the block"):
        await asyncio.create_task(run())
    assert bound.expired()


async def test_closed_alarms_end_nothing(monkeypatch: pytest.MonkeyPatch):
    """And leave no timer behind."""
    timeouts, timers = TimeoutQueue(), _timers(monkeypatch)
    waiting, short = await _begun(timeouts.within(SHORT)), await _begun(TimeoutQueue().within(2 * SHORT))
    timeouts.close()
    await asyncio.wait([short])

    assert not waiting.done()
    assert len(timers) == 2
    waiting.cancel()
    await asyncio.wait([waiting])
    assert isinstance(short.exception(), TimeoutError)


async def test_no_time_passes_while_it_is_frozen() -> None:
    """Blocks that began before or meanwhile end later by as long as that; one that is over stays over."""
    timeouts, loop = TimeoutQueue(), asyncio.get_running_loop()
    over = await _begun(timeouts.within(SHORT))
    with pytest.raises(TimeoutError):
        await over
    before = await _begun(timeouts.within(SHORT))
    timeouts.freeze()
    timeouts.freeze()
    within = await _begun(timeouts.within(SHORT))
    ended = await _begun(timeouts.within(SHORT), asyncio.sleep(0, "done"))
    frozen = loop.time()
    await asyncio.wait({before, within}, timeout=10 * SHORT)
    assert not before.done()
    assert not within.done()
    assert await ended == "done"

    timeouts.go_on()
    timeouts.go_on()
    for task in (before, within):
        with pytest.raises(TimeoutError):
            await task
    assert loop.time() - frozen >= 11 * SHORT
