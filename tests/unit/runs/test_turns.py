"""Turns of items that begin: others are served between them, and a cancelled item costs the rest nothing."""

import asyncio
import itertools

from crucible_worker.runs.batches import each
from crucible_worker.runs.turns import ITEMS_A_PASS, Turns

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
    turns = Turns()
    waiting = [asyncio.create_task(turns.take()) for _ in range(4 * ITEMS_A_PASS)]
    await asyncio.sleep(0)
    for task in waiting[ITEMS_A_PASS : 3 * ITEMS_A_PASS]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert [task.cancelled() for task in waiting].count(True) == 2 * ITEMS_A_PASS
    await asyncio.wait_for(turns.take(), 30)
