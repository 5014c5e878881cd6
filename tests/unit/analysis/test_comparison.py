"""Comparisons take turns, whatever becomes of those who asked for them."""

import asyncio
from typing import Any, cast

import pytest

from crucible_bridge.errors import NotFound
from crucible_bridge.types import CompareRequest
from crucible_worker.analysis.comparison import Comparisons
from crucible_worker.evaluators.registry import info_if_known
from crucible_worker.journal import Journal

REQUEST = CompareRequest(run_id="run")


class Reading:
    """A journal whose reads end when they are let go; the first one fails."""

    def __init__(self) -> None:
        self.begun = 0
        self.let_go = asyncio.Event()

    async def read(self, *arguments: Any) -> str:
        self.begun += 1
        number = self.begun
        await self.let_go.wait()
        if number == 1:
            raise NotFound("nothing is there")
        return f"read {number}"


async def test_who_goes_away_leaves_the_turn_to_what_is_being_read():
    """The reader is busy until it is done; then comes the next, whatever the first one ended with."""
    journal = Reading()
    comparisons = Comparisons(cast(Journal, journal), max_samples=1, known=info_if_known)
    first, second, third = (asyncio.create_task(comparisons.compare(REQUEST)) for _ in range(3))
    await asyncio.sleep(0)
    for gone in (first, second):  # one at work, one that waits
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    await asyncio.sleep(0)
    assert journal.begun == 1

    journal.let_go.set()

    assert await third == "read 2"
