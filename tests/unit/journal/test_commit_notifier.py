"""News: whoever waits is woken by commits of this worker and of others, and by the end."""

import asyncio

import pytest

from crucible_bridge.errors import Unavailable
from tests.unit.journal.journals import append, open_journal

LONG = 30.0
"""Longer than any test takes: who is woken is woken by news."""


@pytest.fixture
async def journals(tmp_path):
    """Two workers' journals on one file."""
    async with open_journal(tmp_path) as one, open_journal(tmp_path) as other:
        yield one, other


async def _waiting(journal, count=1):
    """So many tasks that wait, having begun to."""
    tasks = [asyncio.create_task(journal.commits.wait(journal.commits.count, LONG)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("writer", [0, 1])
async def test_commits_wake_everybody_who_waits(journals, writer):
    """A commit of this worker, or of another one, wakes all waiters of each, with a count that has grown."""
    before = [journal.commits.count for journal in journals]
    tasks = [await _waiting(journal, 3) for journal in journals]
    await append(journals[writer], 1)
    async with asyncio.timeout(5):
        for count, waiting in zip(before, tasks, strict=True):
            assert all(found > count for found in await asyncio.gather(*waiting))


async def test_news_that_came_before_are_not_waited_for(journals):
    """Who has not seen the last count gets it at once, so that nothing falls between looking and waiting."""
    one, _ = journals
    seen = one.commits.count
    await append(one, 1)
    assert await one.commits.wait(seen, LONG) > seen


async def test_wait_ends_without_news(journals):
    """After `at_most` it returns, with the count as it was."""
    one, _ = journals
    seen = one.commits.count
    assert await one.commits.wait(seen, 0.001) == seen


async def test_waiter_that_goes_away_is_forgotten(journals):
    """A cancelled waiter leaves nothing behind, and the others are woken."""
    one, _ = journals
    gone, stays = await _waiting(one, 2)
    gone.cancel()
    await asyncio.wait([gone])
    await append(one, 1)
    async with asyncio.timeout(5):
        await stays


async def test_closing_wakes_everybody_and_refuses_to_wait(journals):
    """At the end all waiters return; who comes later is told that the worker drains."""
    one, _ = journals
    tasks = await _waiting(one, 2)
    await one.aclose()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    with pytest.raises(Unavailable, match="drain"):
        await one.commits.wait(one.commits.count, LONG)
