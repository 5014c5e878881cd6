"""Turns at a server that serves one thing at a time: shared by those that want the same, changed for the others."""

import asyncio

import pytest

from crucible_worker.backends.managed.arbitration import IDLE_SECONDS, SLICE_SECONDS, ServerLock
from tests.robustness.harness import until


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """Turns, and what was changed to, in order."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changes: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.turns: ServerLock[str] = ServerLock(self._change, self.clock)

    async def _change(self, key: str) -> None:
        self.changes.append(key)
        await self.gate.wait()
        if self.error is not None:
            raise self.error


async def held(turns: ServerLock[str], key: str) -> tuple[asyncio.Event, asyncio.Task[None]]:
    """A request that has its turn, until the event is set."""
    began, let_go = asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with turns.of(key):
            began.set()
            await let_go.wait()

    task = asyncio.create_task(use())
    await began.wait()
    return let_go, task


async def use(turns: ServerLock[str], key: str) -> None:
    """A request that ends at once."""
    async with turns.of(key):
        pass


async def test_those_that_want_the_same_share_it():
    """One change serves all of them, at once."""
    rig = Rig()
    first, one = await held(rig.turns, "a")
    second, other = await held(rig.turns, "a")
    assert rig.changes == ["a"]
    first.set()
    second.set()
    await asyncio.gather(one, other)


async def test_no_request_runs_while_another_thing_is_served():
    """A change waits until the last request has ended, and a moment longer."""
    rig = Rig()
    let_go, one = await held(rig.turns, "a")
    other = asyncio.create_task(use(rig.turns, "b"))
    rig.clock.now += IDLE_SECONDS
    await asyncio.sleep(0)
    assert rig.changes == ["a"]
    let_go.set()
    await one
    assert rig.changes == ["a"]
    rig.clock.now += IDLE_SECONDS
    await other
    assert rig.changes == ["a", "b"]


async def test_others_wait_no_longer_than_a_slice():
    """After it no further request for the same gets in, until the others have had their turn."""
    rig = Rig()
    let_go, one = await held(rig.turns, "a")
    other = asyncio.create_task(use(rig.turns, "b"))
    await asyncio.sleep(0)
    rig.clock.now += SLICE_SECONDS + 1
    late = asyncio.create_task(use(rig.turns, "a"))
    await asyncio.sleep(0)
    let_go.set()
    await asyncio.gather(one, other)
    assert rig.changes == ["a", "b"]
    rig.clock.now += IDLE_SECONDS
    await late
    assert rig.changes == ["a", "b", "a"]


async def test_a_change_that_fails_is_told_to_those_that_wanted_it():
    """Others get their turn, and the next request tries it again."""
    rig = Rig()
    rig.error = ValueError("no")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await use(rig.turns, "a")
    rig.error = None
    await use(rig.turns, "b")
    assert rig.changes == ["a", "a", "b"]


async def test_a_change_goes_on_without_the_one_that_began_it():
    """A cancelled request leaves no half of a change: the next one finds it done."""
    rig = Rig()
    rig.gate.clear()
    task = asyncio.create_task(use(rig.turns, "a"))
    await until(lambda: rig.changes == ["a"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    rig.gate.set()
    await use(rig.turns, "a")
    assert rig.changes == ["a"]


async def test_what_is_forgotten_is_changed_to_again():
    """Also for those that want the same."""
    rig = Rig()
    await use(rig.turns, "a")
    rig.turns.forget()
    await use(rig.turns, "a")
    assert rig.changes == ["a", "a"]
