"""GPUs of managed servers: an idle server gives them up, and no server waits for one that waits."""

import asyncio

import pytest

from crucible_worker.backends.managed.arbitration import Claims, InUse


class Owner:
    """A deployment that a test makes busy."""

    def __init__(self, name: str) -> None:
        self.told = name
        self.given_up = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def idle(self) -> bool:
        """Whether nothing uses it."""
        return self._unused.is_set()

    @idle.setter
    def idle(self, idle: bool) -> None:
        (self._unused.set if idle else self._unused.clear)()

    async def until_idle(self) -> None:
        """Wait for that."""
        await self._unused.wait()

    async def give_up(self) -> None:
        """Count it."""
        self.given_up += 1


async def test_an_idle_owner_gives_up_all_of_its_gpus_once():
    """It runs as a whole or not at all; GPUs that the other does not need are free then."""
    claims, one, other, third = Claims(), Owner("one"), Owner("other"), Owner("third")
    await claims.claim(one, ("0", "1"), 1.0)
    await claims.claim(one, ("0", "1"), 1.0)
    assert one.given_up == 0
    await claims.claim(other, ("1", "2"), 1.0)
    await claims.claim(third, ("0",), 1.0)
    assert (one.given_up, other.given_up) == (1, 0)
    await claims.claim(one, ("0", "1"), 1.0)
    assert (other.given_up, third.given_up) == (1, 1)


async def test_a_busy_owner_is_waited_for_and_named():
    """A claim that comes too late changes nothing."""
    claims, one, other = Claims(), Owner("the server 'a'"), Owner("other")
    await claims.claim(one, ("0",), 1.0)
    one.idle = False
    with pytest.raises(InUse, match="device '0' is in use by the server 'a'"):
        await claims.claim(other, ("0", "1"), 0.05)
    assert one.given_up == 0
    waiting = asyncio.create_task(claims.claim(other, ("0",), 60.0))
    await asyncio.sleep(0)
    # It changes its checkpoint, which waits for no other server.
    await asyncio.wait_for(claims.claim(one, ("0",), 60.0), 10.0)
    one.idle = True
    await asyncio.wait_for(waiting, 10.0)
    assert one.given_up == 1
