"""Turns of items that begin: others are served between them, and a cancelled item costs the rest nothing."""

import asyncio
import itertools

import pytest

from crucible_worker.inference.batches import ITEMS_A_PASS, each
from crucible_worker.util.tasks import FewAtOnce, SharedLock
from tests import virtual_time

COUNT = 50 * ITEMS_A_PASS


async def most_in_a_pass(concurrency: int) -> int:
    """The most items that begin in one pass, if each of them fails at once."""
    begun: list[int] = []
    passes: list[int] = []

    async def fail(index: int) -> None:
        begun.append(index)

    async def look() -> None:
        while len(begun) < COUNT:
            passes.append(len(begun))
            await asyncio.sleep(0)

    await asyncio.gather(look(), each(COUNT, fail, concurrency))
    assert sorted(begun) == list(range(COUNT))
    return max(after - before for before, after in itertools.pairwise(passes))


async def test_a_pass_of_the_loop_has_few_items():
    """However many may begin at once."""
    assert await most_in_a_pass(1) <= 2 * ITEMS_A_PASS
    assert await most_in_a_pass(COUNT) <= 2 * ITEMS_A_PASS


async def test_a_cancelled_item_takes_no_turn():
    """Those behind it begin all the same."""
    turns = SharedLock(ITEMS_A_PASS)
    waiting = [asyncio.create_task(turns.take()) for _ in range(4 * ITEMS_A_PASS)]
    await asyncio.sleep(0)
    for task in waiting[ITEMS_A_PASS : 3 * ITEMS_A_PASS]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert [task.cancelled() for task in waiting].count(True) == 2 * ITEMS_A_PASS
    await asyncio.wait_for(turns.take(), 30)


async def test_a_turn_of_many_items_is_the_last_of_its_pass():
    """Items count, not turns: no turn begins in a pass that has its items."""
    turns, passes, begun = SharedLock(10), 0, []

    async def take(items: int) -> None:
        await turns.take(items)
        begun.append(passes)

    taking = asyncio.gather(*(take(items) for items in (4, 4, 4, 10, 1, 9)))
    while not taking.done():
        await asyncio.sleep(0)
        passes += 1

    # The third reaches ten; the fourth has a pass, and the last two share one.
    assert begun[0] == begun[1] == begun[2] < begun[3] < begun[4] == begun[5]


def test_few_blocks_are_at_work_at_once():
    """The next one begins when one of them ends, in the order of the calls."""
    few, at_work, begun = FewAtOnce(2), 0, []

    async def block(number: int) -> None:
        nonlocal at_work
        async with few.begun(60):
            begun.append(number)
            at_work += 1
            assert at_work <= 2
            await asyncio.sleep(1)
            at_work -= 1

    async def all_blocks() -> float:
        await asyncio.gather(*map(block, range(10)))
        return asyncio.get_running_loop().time()

    assert virtual_time.run(all_blocks()) == pytest.approx(5)
    assert begun == sorted(begun)


def test_a_block_that_takes_long_lets_another_one_begin():
    """Once for each, whether it ends later or fails."""
    few, begun = FewAtOnce(1), []

    async def block(seconds: float, *, fails: bool = False) -> None:
        loop = asyncio.get_running_loop()
        async with few.begun(1):
            begun.append(loop.time())
            await asyncio.sleep(seconds)
            if fails:
                raise ValueError

    async def all_blocks() -> None:
        start = asyncio.get_running_loop().time()
        slow = block(100), block(100, fails=True), block(100)
        await asyncio.gather(*slow, block(0.5), block(0.5), block(0.5, fails=True), block(0), return_exceptions=True)
        begun[:] = [round(at - start, 3) for at in begun]

    virtual_time.run(all_blocks())
    assert begun == [0, 1, 2, 3, 3.5, 4, 4.5]


def test_a_cancelled_block_gives_its_place_back():
    """While it waits, and while it is at work."""

    async def all_blocks() -> None:
        few, nothing = FewAtOnce(1), asyncio.Event()

        async def block() -> None:
            async with few.begun(1000):
                await nothing.wait()

        tasks = [asyncio.create_task(block()) for _ in range(3)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        async with asyncio.timeout(1), few.begun(1000):
            pass

    virtual_time.run(all_blocks())
