"""How long the message of a call may take, with one timer for all calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crucible_bridge.errors import DeadlineExceeded
from crucible_worker.interceptors.arrivals import Arrivals

SHORT = 0.01


class Caller:
    """Stands in for a call's context: its message comes when it is sent."""

    def __init__(self) -> None:
        self.sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        return await self.sent


async def waiting(arrivals: Arrivals) -> tuple[Caller, asyncio.Task[Any]]:
    """A call that waits for its message."""
    caller: Any = Caller()
    task = asyncio.create_task(arrivals.message(caller))
    await asyncio.sleep(0)
    return caller, task


async def test_many_calls_have_one_timer(monkeypatch: pytest.MonkeyPatch):
    """The loop keeps one timer, whether calls wait one after the other or all at once."""
    loop, made = asyncio.get_running_loop(), []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda *arguments: made.append(arguments) or call_at(*arguments))
    arrivals = Arrivals(60)
    for _ in range(3):
        calls = [await waiting(arrivals) for _ in range(5)]
        for caller, _ in calls:
            caller.sent.set_result(b"m")
        assert await asyncio.gather(*[task for _, task in calls]) == [b"m"] * 5

    assert len(made) == 1


async def test_each_call_that_waits_ends_at_its_own_time():
    """Those that came later end later, also by a timer that was set for an earlier one."""
    arrivals, loop = Arrivals(SHORT), asyncio.get_running_loop()
    for _ in range(2):  # the second time with a timer that has been set anew
        for _ in range(3):
            began = loop.time()
            _, first = await waiting(arrivals)
            while loop.time() < began + SHORT / 2:
                await asyncio.sleep(0)
            later = loop.time()
            _, second = await waiting(arrivals)

            with pytest.raises(DeadlineExceeded) as caught:
                await first
            assert caught.value.reason == "REQUEST_TOO_SLOW"
            with pytest.raises(DeadlineExceeded):
                await second
            assert loop.time() >= later + SHORT


async def test_a_message_in_time_ends_the_wait():
    """A call whose message came is not cancelled by the timer that is still set."""
    arrivals = Arrivals(SHORT)
    caller: Any = Caller()

    async def call() -> bytes:
        data = await arrivals.message(caller)
        _, late = await waiting(arrivals)  # ends by the timer, after this call's own time
        await asyncio.wait([late])
        assert isinstance(late.exception(), DeadlineExceeded)
        return data

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.sent.set_result(b"m")
    assert await task == b"m"


async def test_a_call_that_is_cancelled_while_it_waits_is_cancelled():
    """A caller that goes away, or a drain, is heard, also where the time runs out in the same moment."""
    arrivals = Arrivals(SHORT)
    _, alone = await waiting(arrivals)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone

    _, both = await waiting(arrivals)
    loop = asyncio.get_running_loop()
    until = loop.time() + 2 * SHORT
    while loop.time() < until:
        pass  # the loop is held up, so that the timer is overdue
    loop.call_soon(both.cancel)
    with pytest.raises(asyncio.CancelledError):
        await both
