"""How many samples of an attempt may be at work, and which of its time counts."""

import asyncio
import time

import pytest

from crucible_worker.engine.controls import Control
from crucible_worker.engine.scheduler import Throttle


def throttle(control=None, **fields):
    """Of an attempt whose request asks for four samples at once, of eight at most."""
    defaults = {"asked": 4, "most": 8, "since": time.monotonic()}
    return Throttle(control or Control(), **{**defaults, **fields})


@pytest.mark.parametrize(
    ("control", "allowed"),
    [
        (Control(), 4),
        (Control(1, False, 1), 1),
        (Control(1, False, 8), 8),
        (Control(1, False, 9), 8),
        (Control(1, True, None), 0),
        (Control(1, True, 8), 0),
    ],
)
async def test_a_pause_and_the_workers_bound_stand_above_the_limit(control, allowed):
    """Whether it was set before the attempt began, or is set meanwhile."""
    assert throttle(control).allowed == allowed
    running = throttle()
    assert running.apply(control) == control.paused
    assert running.allowed == allowed


async def test_news_that_come_late_change_nothing():
    """A reading of the journal may arrive after a later one."""
    running = throttle()
    running.apply(Control(2, False, 2))
    assert not running.apply(Control(1, True, 8))
    assert not running.apply(Control(2, True, 8))
    assert (running.paused, running.allowed) == (False, 2)


async def test_only_time_without_a_pause_counts():
    """Of an attempt that begins paused as well; a second pause adds to the first."""
    began = time.monotonic() - 100
    running = throttle(Control(1, True), since=began)
    assert running.active_seconds == 0
    running.apply(Control(2, False))
    before = running.active_seconds
    assert 0 <= before < 50
    running.apply(Control(3, True))
    paused = running.active_seconds
    await asyncio.sleep(0.05)
    assert running.active_seconds == paused >= before
    running.apply(Control(4, True, 2))  # another limit ends no pause
    assert running.active_seconds == paused
    running.apply(Control(5, False, 2))
    assert running.active_seconds - paused < time.monotonic() - began - 100


async def test_whoever_waits_is_woken():
    """At the end of a pause alone, or at each change."""
    running = throttle(Control(1, True))
    opened, changed = asyncio.create_task(running.opened()), asyncio.create_task(running.changed())
    await asyncio.sleep(0)
    running.apply(Control(2, True, 2))
    await asyncio.wait_for(changed, 10)
    assert not opened.done()
    running.apply(Control(3, False, 2))
    await asyncio.wait_for(opened, 10)
