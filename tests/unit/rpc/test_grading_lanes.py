"""The thread of GradingService: who has its turn when."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from crucible_worker.rpc import grading
from crucible_worker.rpc.grading import LARGE_REQUEST_BYTES, Lanes

LARGE = bytes(LARGE_REQUEST_BYTES)


@pytest.fixture
async def lanes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lanes]:
    """Its slices have one item."""
    monkeypatch.setattr(grading, "SLICE_SECONDS", 0.0)
    lanes = Lanes()
    yield lanes
    lanes.close()


async def test_a_short_call_has_its_turn_between_slices_of_long_ones(lanes: Lanes) -> None:
    """It waits for the slice at work and one more, however many long calls have begun."""
    done: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def long() -> Iterator[int]:
        for number in range(10):
            done.append("long")
            if len(done) == 40:  # all have begun
                begun.set()
                assert go_on.wait(30)
            yield number

    calls = [asyncio.create_task(lanes.sliced(long)) for _ in range(8)]
    assert await asyncio.to_thread(begun.wait, 30)
    short = asyncio.create_task(lanes.run(LARGE, lambda: done.append("short")))
    await asyncio.sleep(0)  # it is in its queue then
    go_on.set()
    await short
    assert [await call for call in calls] == [list(range(10))] * 8
    assert done.index("short") <= 41


async def test_an_error_is_that_of_its_call_alone(lanes: Lanes) -> None:
    """The thread goes on with the next one."""

    def broken() -> None:
        raise ValueError("no number")

    failed, fine = await asyncio.gather(
        lanes.run(LARGE, broken), lanes.sliced(lambda: iter("abc")), return_exceptions=True
    )
    assert (str(failed), fine) == ("no number", ["a", "b", "c"])


async def test_what_is_no_longer_waited_for_is_not_begun(lanes: Lanes) -> None:
    """A call that has ended costs the thread nothing."""
    go_on, begun, done = threading.Event(), threading.Event(), []

    def waits() -> None:
        begun.set()
        assert go_on.wait(30)

    first = asyncio.create_task(lanes.run(LARGE, waits))
    assert await asyncio.to_thread(begun.wait, 30)
    ended = asyncio.create_task(lanes.run(LARGE, lambda: done.append("ended")))
    last = asyncio.create_task(lanes.run(LARGE, lambda: done.append("last")))
    await asyncio.sleep(0)
    ended.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, last)
    assert done == ["last"]


async def test_a_small_request_needs_no_thread(lanes: Lanes) -> None:
    """It is parsed at once."""
    assert await lanes.run(b"", threading.get_ident) == threading.get_ident()


async def test_the_event_loop_goes_before_the_thread(lanes: Lanes) -> None:
    """Where both want one core; the thread's niceness is at most the kernel's 19."""

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    assert await lanes.run(LARGE, niceness) == min(19, niceness() + 10)
